"""One piece of advice for a family of tools."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.memory_api.playbook.rolls import MOST_NAMES, head_of, join, read, with_roll

HEAD = "Before a call that changes something, never guess an argument."
JA = "引数は、推測で決めない。"
HEADS = st.sampled_from([HEAD, JA])
NAMES = st.from_regex(r"[a-z_]{1,12}(\[\]\.[a-z]{1,5})?", fullmatch=True)
ENTRIES = st.dictionaries(NAMES, st.lists(NAMES, max_size=3), min_size=1, max_size=4)


def test_the_same_advice_on_another_tool_joins_the_roll() -> None:
    ours = with_roll(HEAD, "Wrong before", {"book": ["date"]})
    theirs = with_roll(HEAD, "Wrong before", {"cancel": [], "book": ["amount"]})
    assert ours == f"{HEAD} Wrong before: `book` (`date`)."
    assert join(ours, theirs) == f"{HEAD} Wrong before: `book` (`amount`, `date`), `cancel`."


def test_two_sides_of_one_advice_are_two_sentences_of_it() -> None:
    ours = with_roll(HEAD, "Called without need", {"book": []})
    theirs = with_roll(HEAD, "Declined too early", {"book": []})
    both = f"{HEAD} Called without need: `book`. Declined too early: `book`."
    assert join(ours, theirs) == join(theirs, ours) == both


def test_in_japanese() -> None:
    ours = with_roll(JA, "誤った引数", {"Booking_taxi": ["hour"]})
    assert ours == f"{JA}誤った引数：`Booking_taxi`（`hour`）。"
    theirs = with_roll(JA, "誤った引数", {"Booking_hotel": []})
    assert join(ours, theirs) == f"{JA}誤った引数：`Booking_hotel`、`Booking_taxi`（`hour`）。"


@pytest.mark.parametrize(
    "other",
    [
        HEAD,
        with_roll("Before a call, ask for a plain yes.", "Wrong before", {"book": []}),
        "Wrong before: `book`.",
        f"{HEAD} Wrong before: book.",
        f"{HEAD} Wrong before: `book`. And so on.",
        "",
    ],
)
def test_other_advice_is_not_joined(other: str) -> None:
    ours = with_roll(HEAD, "Wrong before", {"book": []})
    assert join(ours, other) is None
    assert join(other, ours) is None


def test_a_roll_that_is_full_stays_as_it_is() -> None:
    full = with_roll(HEAD, "Wrong before", {f"tool_{n:02}": [] for n in range(MOST_NAMES)})
    assert join(full, with_roll(HEAD, "Wrong before", {"another": []})) == full


def test_what_cannot_be_shown_is_left_out() -> None:
    assert with_roll(HEAD, "Seen with", {"": [], "a`b": [], "x\ny": [], "z" * 99: []}) == HEAD
    assert with_roll(HEAD, "Seen with", {"ok": ["a`b"]}) == f"{HEAD} Seen with: `ok`."


@given(HEADS, ENTRIES, ENTRIES)
def test_property_order_does_not_matter_and_twice_is_once(head: str, a: dict, b: dict) -> None:
    ours, theirs = with_roll(head, "Seen with", a), with_roll(head, "Seen with", b)
    both = join(ours, theirs)
    assert both is not None
    assert both == join(theirs, ours)
    assert join(both, ours) == join(both, theirs) == both
    assert head_of(both) == head


@given(HEADS, ENTRIES)
def test_property_what_is_written_is_read(head: str, entries: dict[str, list[str]]) -> None:
    found = read(with_roll(head, "Seen with", entries))
    assert found is not None
    assert found.head == head
    assert found.rolls == {"Seen with": {name: frozenset(of) for name, of in entries.items()}}


@given(st.text(max_size=80))
def test_property_any_text_is_read(text: str) -> None:
    found = read(text)
    assert found is None or found.head in text
