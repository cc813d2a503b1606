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


TABLE_HEAD = "| task | period |\n|---|---|\n"
ROWS = [f"| task {n} | every {n} hours. Not on Sundays. |\n" for n in range(40)]
TABLE = "# Tasks\n\nWhat runs.\n\n" + TABLE_HEAD + "".join(ROWS) + "\nThe end.\n"


def test_each_chunk_of_a_table_has_whole_rows_and_the_heading() -> None:
    chunks = split_pages([TABLE], 80, has_headings=True)
    assert len(chunks) > 4
    for chunk in chunks:
        assert chunk.headings == ("Tasks",)
        assert chunk.text.count(TABLE_HEAD) == 1
        rows = [line for line in chunk.text.splitlines() if line.startswith("| task ")]
        assert {f"{row}\n" for row in rows} <= {"| task | period |\n", *ROWS}
        assert estimate_tokens(chunk.text) <= 80 * 1.2
    assert sum(chunk.text.count("every") for chunk in chunks) == len(ROWS)
    assert chunks[1].text == TABLE_HEAD + TABLE[chunks[1].start : chunks[1].end]


def test_row_that_is_longer_than_a_chunk_is_whole() -> None:
    long = f"| a | {'A sentence. ' * 40}|"
    chunks = split_pages([f"{TABLE_HEAD}| b | c |\n{long}\n| d | e |"], 64, has_headings=True)
    assert [long in chunk.text for chunk in chunks].count(True) == 1
    assert all(chunk.text.startswith(TABLE_HEAD) for chunk in chunks)


def test_long_heading_does_not_multiply_the_text() -> None:
    heading = f"| {'word ' * 1_600}|\n|---|\n"
    page = heading + "| 1 |\n" * 20_000
    chunks = split_pages([page], 64, has_headings=True)
    assert sum(len(chunk.text) for chunk in chunks) < 3 * len(page)
    huge = f"| {'word ' * 5_000}|\n|---|\n" + "| 1 |\n" * 10
    assert max(estimate_tokens(c.text) for c in split_pages([huge], 64, has_headings=True)) < 2_100


@given(
    st.lists(st.text(alphabet="ab 。.!\n# あ漢`\x85|-", max_size=400), max_size=3),
    st.sampled_from([64, 80, 300]),
    st.booleans(),
)
def test_offsets_are_exact_and_nothing_is_lost(
    pages: list[str], limit: int, has_headings: bool
) -> None:
    chunks = split_pages(pages, limit, has_headings=has_headings)
    for chunk in chunks:
        part = pages[chunk.page - 1][chunk.start : chunk.end]
        assert chunk.text.endswith(part)
        assert part
        assert chunk.text == part or has_headings
        longest = max(map(estimate_tokens, pages[chunk.page - 1].splitlines()))
        assert estimate_tokens(chunk.text) <= limit * 1.2 + 8 + has_headings * 5 * longest
    places = [(chunk.page, chunk.start, chunk.end) for chunk in chunks]
    assert places == sorted(places)
    assert all(a[0] < b[0] or a[2] <= b[1] for a, b in pairwise(places))
    if not has_headings:
        kept = "".join(chunk.text for chunk in chunks)
        assert "".join(kept.split()) == "".join("".join(pages).split())
