"""Chunks: they follow headings and sentences, and their offsets are exact."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memory_api.collections.chunking import split_pages
from memory_api.text.terms import estimate_tokens

MARKDOWN = """Intro before any heading.

# Refunds

Pending orders cannot be refunded. Cancel them.

## Delivered orders

Ask for the receipt first.

```
# not a heading
```

# Shipping
Two days.
"""


def test_chunks_follow_headings() -> None:
    chunks = split_pages([MARKDOWN], 64, has_headings=True)
    assert [chunk.headings for chunk in chunks] == [
        (),
        ("Refunds",),
        ("Refunds", "Delivered orders"),
        ("Shipping",),
    ]
    assert chunks[1].text == "Pending orders cannot be refunded. Cancel them."
    assert "# not a heading" in chunks[2].text


def test_japanese_is_split_after_sentences() -> None:
    text = "返品は三十日以内です。" * 20 + "「本当ですか？」と聞いた。"
    chunks = split_pages([text], 64)
    assert len(chunks) > 2
    assert all(chunk.text.endswith(("。", "」")) for chunk in chunks)


def test_plain_text_has_no_headings() -> None:
    assert split_pages(["# 1 is a number\n\nText."], 64)[0].headings == ()


def test_headings_continue_on_next_page() -> None:
    assert split_pages(["# A\nOne.", "Two."], 64, has_headings=True)[1].headings == ("A",)


@given(
    st.lists(st.text(alphabet="ab 。.!\n# あ漢`\x85", max_size=400), max_size=3),
    st.sampled_from([64, 80, 300]),
    st.booleans(),
)
def test_offsets_are_exact_and_nothing_is_lost(
    pages: list[str], limit: int, has_headings: bool
) -> None:
    chunks = split_pages(pages, limit, has_headings=has_headings)
    for chunk in chunks:
        assert pages[chunk.page - 1][chunk.start : chunk.end] == chunk.text != ""
        assert estimate_tokens(chunk.text) <= limit * 1.2 + 8
    places = [(chunk.page, chunk.start, chunk.end) for chunk in chunks]
    assert places == sorted(places)
    assert all(a[0] < b[0] or a[2] <= b[1] for a, b in pairwise(places))
    if not has_headings:
        kept = "".join(chunk.text for chunk in chunks)
        assert "".join(kept.split()) == "".join("".join(pages).split())
