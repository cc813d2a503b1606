"""Deltas one by one: what each does, what is refused, what is an error, and what cleaning drops."""

from __future__ import annotations

from typing import Any

import pytest

from memory_api.playbooks.deltas import DeltaError, apply_deltas, clean_deltas
from memory_api.playbooks.models import Bullet, DeltaContextItem, Playbook, parse_key
from memory_api.playbooks.sections import SectionDefinition
from memory_api.playbooks.state import (
    PlaybookState,
    format_key,
    raise_counters,
    sort_key,
)


def bullet(key: str, text: str, **rest: Any) -> Bullet:
    return Bullet(id=key, section="PATTERNS & APPROACHES", content=text, **rest)


def state(*bullets: Bullet, **rest: Any) -> PlaybookState:
    return PlaybookState.from_playbook(Playbook(bullets=list(bullets)), **rest)


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


def test_add_creates_key_in_fallback_section(three: PlaybookState) -> None:
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


def test_add_creates_missing_fallback_section() -> None:
    own = state(sections=[SectionDefinition(name="rules", slug="rul")])
    after, results = apply_deltas(
        own, [delta("ADD", section="x", content="c"), delta("ADD", section="RULES", content="d")]
    )
    assert [r.key for r in results] == ["oth-00001", "rul-00001"]
    assert [s.name for s in after.sections] == ["rules", "OTHERS"]


def test_add_of_existing_content_is_refused_and_others_apply(three: PlaybookState) -> None:
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
        (
            delta("UPDATE", "pat-00001", content="ask FIRST."),
            "Bullet pat-00002 already has this content.",
        ),
        (delta("UPDATE", "pat-00002", content="x"), "pinned"),
        (delta("DELETE", "pat-00002"), "pinned"),
        (delta("MERGE", source_ids=["pat-00001", "pat-00002"]), "pinned"),
        (
            delta("MERGE", source_ids=["pat-00001", "pat-00004"], content="ask first."),
            "already has this content",
        ),
    ],
)
def test_refused_delta_has_reason_and_changes_nothing(
    three: PlaybookState, given: DeltaContextItem, why: str
) -> None:
    after, [result] = apply_deltas(three, [given])
    assert result.action == "rejected"
    assert why in result.reason
    assert after.bullets == three.bullets


def test_content_removed_by_update_may_be_added_again(three: PlaybookState) -> None:
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
    voted = after.add_verdict("pat-00004", "harmful").bullets["pat-00001"]
    assert (voted.helpful, voted.harmful) == (5, 2)


def test_merge_into_named_survivor_without_alias_chains(three: PlaybookState) -> None:
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
        gone.add_verdict("pat-00001", "helpful")


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
def test_error_names_delta_index_and_nothing_is_applied(
    three: PlaybookState, bad: DeltaContextItem, field: str
) -> None:
    good = delta("UPDATE", "pat-00001", content="Good in itself.")
    with pytest.raises(DeltaError) as error:
        apply_deltas(three, [good, bad])
    assert (error.value.index, error.value.field) == (1, field)
    assert str(error.value).startswith(f"deltas.1.{field}: ")
    assert three.bullets["pat-00001"].content == "Retry once."


def test_delta_on_merged_key_names_survivor(three: PlaybookState) -> None:
    merged, _ = apply_deltas(three, [delta("MERGE", source_ids=["pat-00001", "pat-00004"])])
    with pytest.raises(DeltaError, match="pat-00004 was merged into pat-00001"):
        apply_deltas(merged, [delta("DELETE", "pat-00004")])


def test_filtering_keeps_applicable_deltas_with_reasons_for_rest(three: PlaybookState) -> None:
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
    assert reasons[1] == "bullet pat-99999 not found"
    assert reasons[3] == "pat-00001 is already changed by deltas.2"
    assert reasons[4].startswith("type: ")
    assert reasons[6] == "Bullet pat-00002 is pinned."
    assert dropped[0].delta is given[1]


def test_filtering_accepts_empty_playbook_and_stops_at_limit() -> None:
    given = [{"type": "ADD", "content": f"lesson {n}"} for n in range(13)]
    kept, dropped = clean_deltas(Playbook(), given)
    assert (len(kept), [d.index for d in dropped]) == (10, [10, 11, 12])
    assert dropped[0].reason == "More than 10 deltas."


def test_key_counters_exceed_imported_keys() -> None:
    imported = state(
        bullet("pat-7", "a"), bullet("kpt_900", "b"), bullet(f"pat-{10**30}", "c"), bullet("x", "d")
    )
    after, [result] = apply_deltas(imported, [delta("ADD", section="pat", content="n")])
    assert result.key == "pat-00008"
    assert after.key_counters == {"pat": 8, "kpt": 900}
    assert state(key_counters={"pat": 50}).key_counters == {"pat": 50}


def test_alias_that_was_imported_as_a_bullet_is_that_bullet() -> None:
    both = state(bullet("a", "1"), bullet("b", "2"), aliases={"a": "b", "c": "b"})
    assert (both.resolve("a"), both.resolve("c")) == ("a", "b")


def test_duplicate_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="share a key"):
        state(bullet("a", "1"), bullet("a", "2"))


def test_keys() -> None:
    assert format_key("pat", 7) == "pat-00007"
    assert parse_key("pat-00007") == ("pat", 7)
    assert parse_key("kpt_012") == ("kpt", 12)
    assert parse_key("f81d4fae-7dec-11d0") is None
    assert raise_counters({"pat": 3}, ["pat-00002", "mis-9"]) == {"pat": 3, "mis": 9}
    assert sorted(["pat-10", "pat-2", "mis-9"], key=sort_key) == ["mis-9", "pat-2", "pat-10"]
