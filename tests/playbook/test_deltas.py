"""Deltas one by one: what each does, what is refused, what is an error, and what cleaning drops."""

from __future__ import annotations

from typing import Any

import pytest

from apps.memory_api.playbook.deltas import DeltaError, apply_deltas, clean_deltas
from apps.memory_api.playbook.keys import format_key, lift, parse_key, sort_key
from apps.memory_api.playbook.schemas import Bullet, DeltaContextItem, Playbook
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.state import PlaybookState


def bullet(key: str, text: str, **rest: Any) -> Bullet:
    return Bullet(id=key, section="PATTERNS & APPROACHES", content=text, **rest)


def state(*bullets: Bullet, **rest: Any) -> PlaybookState:
    return PlaybookState.of(Playbook(bullets=list(bullets)), **rest)


def delta(kind: str, key: str | None = None, **rest: Any) -> DeltaContextItem:
    return DeltaContextItem.model_validate({"type": kind, "bullet_id": key, **rest})


@pytest.fixture
def three() -> PlaybookState:
    return state(
        bullet(
            "pat-00001",
            "Retry once.",
            helpful=3,
            harmful=1,
            neutral=2,
            tags=["net"],
            keywords=["a"],
        ),
        bullet("pat-00004", "Retry one time.", helpful=2, tags=["io"], keywords=["b", "a"]),
        bullet("pat-00002", "Ask first.", harmful=4, pinned=True),
    )


def test_add_makes_a_key_and_falls_back_to_others(three: PlaybookState) -> None:
    after, results = apply_deltas(
        three,
        [
            delta("ADD", section="  patterns and approaches", content="New", when_to_use="always"),
            delta("ADD", section="no such", content="Elsewhere"),
            delta("ADD", "pat-00001", section="pat", content="An id of its own is not taken"),
        ],
    )
    assert [(r.action, r.key) for r in results] == [
        ("added", "pat-00005"),
        ("added", "oth-00001"),
        ("added", "pat-00006"),
    ]
    new = after.bullets["pat-00005"]
    assert (new.section, new.searchable_text) == ("PATTERNS & APPROACHES", "always\nNew")
    assert after.bullets["oth-00001"].section == "OTHERS"
    assert (results[0].before, results[0].after) == (None, new)


def test_add_falls_back_also_where_a_playbook_has_no_others() -> None:
    own = state(sections=[SectionDefinition(name="rules", slug="rul")])
    after, results = apply_deltas(
        own, [delta("ADD", section="x", content="c"), delta("ADD", section="RULES", content="d")]
    )
    assert [r.key for r in results] == ["oth-00001", "rul-00001"]
    assert [s.name for s in after.sections] == ["rules", "OTHERS"]


def test_add_of_the_same_words_is_refused_and_the_rest_goes_on(three: PlaybookState) -> None:
    after, results = apply_deltas(
        three,
        [
            delta("ADD", section="oth", content="  RETRY   once. "),
            delta("ADD", section="oth", content="Fresh"),
            delta("ADD", section="oth", content="ＦＲＥＳＨ"),
        ],
    )
    assert [r.action for r in results] == ["rejected", "added", "rejected"]
    assert "pat-00001" in results[0].reason
    assert len(after.bullets) == 4


def test_update_changes_what_is_given_and_keeps_the_rest(three: PlaybookState) -> None:
    after, [result] = apply_deltas(
        three,
        [delta("UPDATE", "pat-00001", content="Retry twice.", section="OTHERS", reason="why")],
    )
    new = after.bullets["pat-00001"]
    assert (new.content, new.section) == ("Retry twice.", "PATTERNS & APPROACHES")
    assert (new.helpful, new.harmful, new.neutral, new.tags) == (3, 1, 2, ["net"])
    assert new.searchable_text == "Retry twice.\na"
    assert (result.action, result.reason, result.after) == ("updated", "why", new)
    assert result.before == three.bullets["pat-00001"]
    after, _ = apply_deltas(after, [delta("UPDATE", "pat-00001", tags=[], when_to_use="on 503")])
    assert (after.bullets["pat-00001"].tags, after.bullets["pat-00001"].when_to_use) == (
        [],
        "on 503",
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (delta("UPDATE", "pat-00001", content="Retry once."), "changes nothing"),
        (delta("UPDATE", "pat-00001"), "changes nothing"),
        (delta("UPDATE", "pat-00001", content="ask FIRST."), "same words as pat-00002"),
        (delta("UPDATE", "pat-00002", content="x"), "pinned"),
        (delta("DELETE", "pat-00002"), "pinned"),
        (delta("MERGE", source_ids=["pat-00001", "pat-00002"]), "pinned"),
        (delta("MERGE", source_ids=["pat-00001", "pat-00004"], content="ask first."), "same words"),
    ],
)
def test_what_is_refused_says_why_and_changes_nothing(
    three: PlaybookState, given: DeltaContextItem, why: str
) -> None:
    after, [result] = apply_deltas(three, [given])
    assert result.action == "rejected"
    assert why in result.reason
    assert after.bullets == three.bullets


def test_words_that_an_update_took_away_may_be_added_again(three: PlaybookState) -> None:
    _, results = apply_deltas(
        three,
        [delta("UPDATE", "pat-00001", content="Other."), delta("ADD", content="Retry once.")],
    )
    assert [r.action for r in results] == ["updated", "added"]


def test_merge_sums_counters_and_leaves_aliases(three: PlaybookState) -> None:
    merge = delta(
        "MERGE", source_ids=["pat-00001", "pat-00004"], merged_text="Retry one time only."
    )
    after, [result] = apply_deltas(three, [merge])
    survivor = after.bullets["pat-00001"]
    assert (survivor.helpful, survivor.harmful, survivor.neutral) == (5, 1, 2)
    assert (survivor.content, survivor.tags) == ("Retry one time only.", ["net", "io"])
    assert survivor.keywords == ["a", "b"]
    assert "pat-00004" not in after.bullets
    assert after.resolve("pat-00004") == "pat-00001"
    assert result.absorbed == [three.bullets["pat-00004"]]
    voted = after.vote("pat-00004", "harmful").bullets["pat-00001"]
    assert (voted.helpful, voted.harmful) == (5, 2)


def test_merge_into_a_named_survivor_and_aliases_never_chain(three: PlaybookState) -> None:
    first, _ = apply_deltas(three, [delta("MERGE", "pat-00004", source_ids=["pat-00001"])])
    assert list(first.bullets) == ["pat-00004", "pat-00002"]
    assert first.bullets["pat-00004"].content == "Retry one time."
    added, [result] = apply_deltas(first, [delta("ADD", section="pat", content="More")])
    assert result.key == "pat-00005"
    second, _ = apply_deltas(added, [delta("MERGE", source_ids=["pat-00005", "pat-00004"])])
    assert second.aliases == {"pat-00001": "pat-00005", "pat-00004": "pat-00005"}
    gone, _ = apply_deltas(second, [delta("DELETE", "pat-00005")])
    assert gone.resolve("pat-00001") is None
    with pytest.raises(KeyError):
        gone.vote("pat-00001", "helpful")


def test_delete_and_keep(three: PlaybookState) -> None:
    after, results = apply_deltas(
        three, [delta("DELETE", "pat-00004", reason="stale"), delta("KEEP", "pat-00002")]
    )
    assert list(after.bullets) == ["pat-00001", "pat-00002"]
    assert [(r.action, r.reason) for r in results] == [("deleted", "stale"), ("kept", "")]
    assert results[0].before == three.bullets["pat-00004"]
    _, [result] = apply_deltas(after, [delta("ADD", section="pat", content="n")])
    assert result.key == "pat-00005"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (delta("UPDATE", "pat-99999", content="x"), "bullet_id"),
        (delta("UPDATE", content="x"), "bullet_id"),
        (delta("DELETE", "nope"), "bullet_id"),
        (delta("KEEP", "nope"), "bullet_id"),
        (delta("ADD", content=" \n"), "content"),
        (delta("MERGE", source_ids=["pat-00004"]), "source_ids"),
        (delta("MERGE", "pat-00004", source_ids=["pat-00004"]), "source_ids"),
        (delta("MERGE", source_ids=["pat-00004", "nope"]), "source_ids"),
        (delta("UPDATE", "pat-00001", content="second on one key"), "bullet_id"),
        (delta("MERGE", source_ids=["pat-00001", "pat-00004"]), "source_ids"),
    ],
)
def test_an_error_names_the_index_and_nothing_is_applied(
    three: PlaybookState, bad: DeltaContextItem, field: str
) -> None:
    good = delta("UPDATE", "pat-00001", content="Good in itself.")
    with pytest.raises(DeltaError) as error:
        apply_deltas(three, [good, bad])
    assert (error.value.index, error.value.field) == (1, field)
    assert str(error.value).startswith(f"deltas[1].{field}: ")
    assert three.bullets["pat-00001"].content == "Retry once."


def test_a_delta_on_a_merged_key_says_where_it_went(three: PlaybookState) -> None:
    merged, _ = apply_deltas(three, [delta("MERGE", source_ids=["pat-00001", "pat-00004"])])
    with pytest.raises(DeltaError, match="pat-00004 was merged into pat-00001"):
        apply_deltas(merged, [delta("DELETE", "pat-00004")])


def test_cleaning_keeps_what_works_and_says_why_the_rest_does_not(three: PlaybookState) -> None:
    given: list[Any] = [
        {"type": "ADD", "section": "MISTAKES TO AVOID", "text": "New", "justification": "extra"},
        {"type": "UPDATE", "target_id": "pat-99999", "text": "x"},
        {"type": "UPDATE", "name": "pat-00001", "id": None, "text": "Retry thrice."},
        {"type": "DELETE", "id": "pat-00001"},
        {"type": "FORGET"},
        {"type": "MERGE", "source_ids": ["pat-00004"]},
        delta("DELETE", "pat-00002"),
        {"content": "no type"},
        {"type": "ADD", "text": 7},
        {"type": "DELETE", "id": "pat-00004"},
    ]
    kept, dropped = clean_deltas(three, given)
    assert [(d.type, d.bullet_id) for d in kept] == [
        ("ADD", None),
        ("UPDATE", "pat-00001"),
        ("DELETE", "pat-00004"),
    ]
    assert [d.index for d in dropped] == [1, 3, 4, 5, 6, 7, 8]
    reasons = {d.index: d.reason for d in dropped}
    assert reasons[1] == "there is no bullet pat-99999"
    assert reasons[3] == "pat-00001 is already changed by deltas[2]"
    assert reasons[4].startswith("type: ")
    assert reasons[6] == "pat-00002 is pinned"
    assert dropped[0].delta is given[1]


def test_cleaning_takes_a_bare_playbook_and_stops_at_the_limit() -> None:
    given = [{"type": "ADD", "content": f"lesson {n}"} for n in range(13)]
    kept, dropped = clean_deltas(Playbook(), given)
    assert (len(kept), [d.index for d in dropped]) == (10, [10, 11, 12])
    assert "more than 10" in dropped[0].reason


def test_counters_are_lifted_above_imported_keys_and_survive_strange_ones() -> None:
    imported = state(
        bullet("pat-7", "a"), bullet("kpt_900", "b"), bullet(f"pat-{10**30}", "c"), bullet("x", "d")
    )
    after, [result] = apply_deltas(imported, [delta("ADD", section="pat", content="n")])
    assert result.key == "pat-00008"
    assert after.last_numbers == {"pat": 8, "kpt": 900}
    assert state(last_numbers={"pat": 50}).last_numbers == {"pat": 50}


def test_an_alias_that_was_imported_as_a_bullet_is_that_bullet() -> None:
    both = state(bullet("a", "1"), bullet("b", "2"), aliases={"a": "b", "c": "b"})
    assert (both.resolve("a"), both.resolve("c")) == ("a", "b")


def test_two_bullets_with_one_key_are_no_state() -> None:
    with pytest.raises(ValueError, match="share a key"):
        state(bullet("a", "1"), bullet("a", "2"))


def test_keys() -> None:
    assert format_key("pat", 7) == "pat-00007"
    assert parse_key("pat-00007") == ("pat", 7)
    assert parse_key("kpt_012") == ("kpt", 12)
    assert parse_key("f81d4fae-7dec-11d0") is None
    assert lift({"pat": 3}, ["pat-00002", "mis-9"]) == {"pat": 3, "mis": 9}
    assert sorted(["pat-10", "pat-2", "mis-9"], key=sort_key) == ["mis-9", "pat-2", "pat-10"]
