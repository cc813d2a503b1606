"""What a judge may call supported: the words of a claim must be in a source."""

from __future__ import annotations

from memory_api.grace.tools.port import Source
from memory_api.grace.tools.reasoning import has_words_of
from tests.support.cases import each_case


@each_case(
    ("claim", "expected"),
    [
        ("The Heron saw is repaired in Bergen.", True),
        ("The Falcon is sold in Oslo.", False),
        ("ヘロン鋸はベルゲンで12日以内に修理されます。", None),
        ("Heron のこぎりは Bergen の倉庫で修理されます。", None),
        ("Heron のこぎりは Oslo の倉庫で修理されます。", False),
        ("ベルゲンで36日以内に修理されます。", False),
    ],
)
def test_words_are_compared_in_the_scripts_of_the_source(claim: str, expected: bool | None) -> None:
    """In another script, a claim is undecided, but its names and numbers are compared."""
    text = "The Heron saw is repaired in the depot at Bergen within 12 days."
    assert has_words_of(claim, [Source("handbook.md", text, 0.9)]) is expected
