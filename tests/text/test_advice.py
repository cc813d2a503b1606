"""One piece of advice for a family of tools."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory_api.text.advice import (
    MAX_LISTED_TOOLS,
    append_tool_list,
    merge_tool_lists,
    parse_tool_lists,
    strip_tool_lists,
)
from tests.support.cases import each_case

HEAD = "Before a call that changes data, do not guess an argument."
JA = "引数は、推測で決めない。"
HEADS = st.sampled_from([HEAD, JA])
NAMES = st.from_regex(r"[a-z_]{1,12}(\[\]\.[a-z]{1,5})?", fullmatch=True)
ENTRIES = st.dictionaries(NAMES, st.lists(NAMES, max_size=3), min_size=1, max_size=4)


def test_same_advice_on_other_tool_extends_tool_list() -> None:
    ours = append_tool_list(HEAD, "Previously wrong", {"book": ["date"]})
    theirs = append_tool_list(HEAD, "Previously wrong", {"cancel": [], "book": ["amount"]})
    assert ours == f"{HEAD} Previously wrong: `book` (`date`)."
    assert (
        merge_tool_lists(ours, theirs)
        == f"{HEAD} Previously wrong: `book` (`amount`, `date`), `cancel`."
    )


def test_opposite_advice_becomes_second_sentence() -> None:
    ours = append_tool_list(HEAD, "Called in failed runs", {"book": []})
    theirs = append_tool_list(HEAD, "Previously missing", {"book": []})
    both = f"{HEAD} Called in failed runs: `book`. Previously missing: `book`."
    assert merge_tool_lists(ours, theirs) == merge_tool_lists(theirs, ours) == both


def test_japanese_tool_lists() -> None:
    ours = append_tool_list(JA, "誤った引数", {"Booking_taxi": ["hour"]})
    assert ours == f"{JA}誤った引数：`Booking_taxi`（`hour`）。"
    theirs = append_tool_list(JA, "誤った引数", {"Booking_hotel": []})
    assert (
        merge_tool_lists(ours, theirs)
        == f"{JA}誤った引数：`Booking_hotel`、`Booking_taxi`（`hour`）。"
    )


@each_case(
    "other",
    [
        HEAD,
        append_tool_list(
            "Before a call, ask for an explicit yes.", "Previously wrong", {"book": []}
        ),
        "Previously wrong: `book`.",
        f"{HEAD} Previously wrong: book.",
        f"{HEAD} Previously wrong: `book`. And so on.",
        "",
    ],
)
def test_different_advice_is_not_joined(other: str) -> None:
    ours = append_tool_list(HEAD, "Previously wrong", {"book": []})
    assert merge_tool_lists(ours, other) is None
    assert merge_tool_lists(other, ours) is None


def test_full_tool_list_is_unchanged() -> None:
    full = append_tool_list(
        HEAD, "Previously wrong", {f"tool_{n:02}": [] for n in range(MAX_LISTED_TOOLS)}
    )
    assert (
        merge_tool_lists(full, append_tool_list(HEAD, "Previously wrong", {"another": []})) == full
    )


def test_unprintable_tool_is_omitted() -> None:
    assert (
        append_tool_list(HEAD, "Observed with", {"": [], "a`b": [], "x\ny": [], "z" * 99: []})
        == HEAD
    )
    assert (
        append_tool_list(HEAD, "Observed with", {"ok": ["a`b"]}) == f"{HEAD} Observed with: `ok`."
    )


@given(HEADS, ENTRIES, ENTRIES)
def test_property_joining_is_commutative_and_idempotent(head: str, a: dict, b: dict) -> None:
    ours, theirs = (
        append_tool_list(head, "Observed with", a),
        append_tool_list(head, "Observed with", b),
    )
    both = merge_tool_lists(ours, theirs)
    assert both is not None
    assert both == merge_tool_lists(theirs, ours)
    assert merge_tool_lists(both, ours) == merge_tool_lists(both, theirs) == both
    assert strip_tool_lists(both) == head


@given(HEADS, ENTRIES)
def test_property_written_tool_list_is_parsed(head: str, entries: dict[str, list[str]]) -> None:
    found = parse_tool_lists(append_tool_list(head, "Observed with", entries))
    assert found is not None
    assert found.advice == head
    assert found.tool_lists == {
        "Observed with": {name: frozenset(of) for name, of in entries.items()}
    }


@given(st.text(max_size=80))
def test_property_any_text_is_read(text: str) -> None:
    found = parse_tool_lists(text)
    assert found is None or found.advice in text
