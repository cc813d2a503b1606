"""The pure parts, as properties: what cleaning lets through can be applied, and pinned bullets
stand; which texts are duplicates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.core.ids import new_id
from memory_api.curation.context import CurationContext, NearbyBullet
from memory_api.curation.curate import propose_changes
from memory_api.curation.model_output import ModelCuration, validate_operations
from memory_api.curation.rebase import (
    MAX_PLAN_DELTAS,
    CurrentPlaybook,
    drop_inapplicable,
    rebase_plan,
)
from memory_api.curation.rules import choose_section, decide_by_rules
from memory_api.curation.schemas import CurationPlan, Lesson, ProposedChange
from memory_api.memories.index.drafts import fingerprint
from memory_api.playbooks.deltas import apply_deltas
from memory_api.playbooks.models import Bullet, DeltaContextItem
from memory_api.playbooks.sections import SectionDefinition
from memory_api.playbooks.state import PlaybookState
from tests.support.cases import each_case
from tests.support.paths import SHARED

WORDS = st.sampled_from(
    [
        "split",
        "the",
        "file",
        "order",
        "never",
        "always",
        "export_rows",
        "10",
        "20",
        "予約",
        "確認する",
    ]
)
TEXT = st.lists(WORDS, max_size=8).map(" ".join)
KEYS = [f"pat-{n:05d}" for n in range(1, 6)]
KEY = st.sampled_from([*KEYS, "pat-00099", "mis-00001"])


@st.composite
def states(draw: st.DrawFn) -> PlaybookState:
    bullets = {
        key: Bullet(
            id=key,
            section="PATTERNS & APPROACHES",
            content=draw(TEXT) + f" {n}",
            pinned=draw(st.booleans()),
            status=draw(st.sampled_from(["active", "quarantined", "archived"])),
            helpful=draw(st.integers(0, 5)),
            harmful=draw(st.integers(0, 5)),
        )
        for n, key in enumerate(draw(st.lists(st.sampled_from(KEYS), unique=True)))
    }
    gone = [key for key in KEYS if key not in bullets]
    alias = {gone[0]: next(iter(bullets))} if gone and bullets else {}
    return PlaybookState(bullets, key_counters={"pat": 5}, aliases=alias)


DELTA = st.builds(
    lambda kind, **more: DeltaContextItem.model_validate({"type": kind, **more}),
    st.sampled_from(["ADD", "UPDATE", "MERGE", "DELETE", "KEEP"]),
    bullet_id=st.none() | KEY,
    source_ids=st.lists(KEY, max_size=3),
    content=TEXT,
    section=st.sampled_from(["", "pat", "OTHERS", "nowhere"]),
    when_to_use=st.none() | TEXT,
)
CANDIDATES = st.lists(st.builds(ProposedChange, delta=DELTA, lessons=st.just([0])), max_size=16)


def untouched(before: PlaybookState, after: PlaybookState) -> bool:
    pinned = [bullet for bullet in before.bullets.values() if bullet.pinned]
    return all(after.bullets.get(bullet.id) == bullet for bullet in pinned)


@settings(max_examples=100)
@given(states(), CANDIDATES)
def test_applicable_changes_can_be_applied(state: PlaybookState, wanted: Any) -> None:
    good, left = drop_inapplicable(state, wanted)
    after, results = apply_deltas(state, [candidate.delta for candidate in good])
    assert all(result.action != "rejected" for result in results)
    assert len(good) <= MAX_PLAN_DELTAS
    assert len(good) + len(left) == len(wanted)
    assert untouched(state, after)


LESSONS = st.lists(
    st.builds(
        Lesson,
        text=TEXT,
        importance=st.floats(0, 1),
    ),
    min_size=1,
    max_size=14,
)


def view_of(state: PlaybookState, lessons: list[Lesson]) -> CurationContext:
    near = [NearbyBullet(bullet, new_id()) for bullet in state.bullets.values()]
    keys = {fingerprint(bullet.content): key for key, bullet in state.bullets.items()}
    same = {n: fingerprint(lesson.text) for n, lesson in enumerate(lessons)}
    same_text = {n: keys[text] for n, text in same.items() if text in keys}
    return CurationContext(1, state, same_text, near=[near] * len(lessons))


@settings(max_examples=100)
@given(states(), LESSONS)
async def test_rules_decide_every_lesson(state: PlaybookState, lessons: list[Lesson]) -> None:
    view = view_of(state, lessons)
    settled = decide_by_rules(lessons, view)
    told = {n for c in settled.changes for n in c.lessons}
    told |= {k.lesson for k in settled.known_lessons} | {
        n for d in settled.rejected_lessons for n in d.lessons
    }
    assert told == set(range(len(lessons)))
    curation = await propose_changes(lessons, view)
    after, results = apply_deltas(state, curation.deltas)
    assert all(result.action != "rejected" for result in results)
    assert untouched(state, after)
    again = decide_by_rules(lessons, view_of(after, lessons))
    adds = {c.delta.content for c in again.changes if c.delta.type == "ADD"}
    assert not adds & {c.delta.content for c in curation.changes if c.delta.type == "ADD"}


@settings(max_examples=100)
@given(states(), states(), CANDIDATES)
def test_old_curation_plan_can_be_applied(
    then: PlaybookState, now: PlaybookState, wanted: Any
) -> None:
    """Whatever others did in between."""
    good, _ = drop_inapplicable(then, wanted)
    curation = CurationPlan(version=1, lessons=[Lesson(text="split the file")], changes=good)
    changed = frozenset(k for k, b in now.bullets.items() if then.bullets.get(k) != b)
    same_text = {fingerprint(bullet.content): key for key, bullet in now.bullets.items()}
    renewed = rebase_plan(curation, CurrentPlaybook(now, same_text, changed))
    after, results = apply_deltas(now, renewed.deltas)
    assert all(result.action != "rejected" for result in results)
    assert untouched(now, after)


OPERATION = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ADD", "update", "MERGE", "DELETE", "KEEP", "REJECT"]),
        "lessons": st.lists(st.integers(-1, 4) | st.just("2"), max_size=3) | st.none(),
        "bullet_id": st.none() | KEY | st.just("[pat-00001]"),
        "source_ids": st.lists(KEY, max_size=3) | st.none(),
        "content": st.none() | TEXT,
        "contradicts": st.lists(KEY, max_size=2),
    }
)


@settings(max_examples=100)
@given(states(), st.lists(OPERATION, max_size=20))
def test_no_model_answer_loses_evidence(
    state: PlaybookState, operations: list[dict[str, Any]]
) -> None:
    """Votes move by merging only, what helped is not deleted, what was not shown is not touched."""
    lessons = [Lesson(text="split the file"), Lesson(text="never export 10"), Lesson(text="予約")]
    answer = ModelCuration.model_validate({"reasoning": "", "operations": operations})
    shown = list(state.bullets)[:2]
    said = validate_operations(answer, shown, [[0], [1], [2]], lessons, view_of(state, lessons))
    good, _ = drop_inapplicable(state, said.changes)
    after, _ = apply_deltas(state, [candidate.delta for candidate in good])
    for key, bullet in state.bullets.items():
        survivor = after.resolve(key)
        if survivor is None:
            assert bullet.harmful > bullet.helpful
        elif key not in shown:
            assert after.bullets[key] == bullet
        else:
            assert after.bullets[survivor].helpful >= bullet.helpful
    votes = sum(b.helpful for k, b in state.bullets.items() if after.resolve(k) is not None)
    assert sum(b.helpful for b in after.bullets.values()) == votes
    told = {n for c in said.changes for n in c.lessons} | {k.lesson for k in said.known_lessons}
    assert told | {n for d in said.rejected_lessons for n in d.lessons} == {0, 1, 2}


@each_case(
    ("a", "b", "same"),
    [
        ("Retry the call.", "retry a call", True),
        ("Ｒｅｔｒｙ　once!", "Retry, once", True),
        ("Use `show_album` to list songs.", "Use show_album() to list the songs.", True),
        ("必ず在庫を確認する。", "必ず、在庫を確認する", True),
        ("Retry the call.", "Do not retry the call.", False),
        ("予約を送り直す。", "予約を送り直さない。", False),
        ("Take the most listened song.", "Take the least listened song.", False),
        ("Wait 5 seconds.", "Wait 50 seconds.", False),
        ("Call search before book.", "Call book before search.", False),
        ("Run it with --force on.", "Run it with --quiet on.", False),
        ("Ask for the order number.", "Ask for the phone number.", False),
        ("必ず在庫を確認する。", "在庫を必ず確認すること。", False),
        ("The", "A", False),
    ],
)
def test_duplicates_have_the_same_words(a: str, b: str, same: bool) -> None:
    assert (fingerprint(a) == fingerprint(b)) is same


def test_requested_section_is_used_else_chosen() -> None:
    own = [
        SectionDefinition(name="strategies_and_hard_rules", slug="shr"),
        SectionDefinition(name="common_mistakes", slug="cms"),
        SectionDefinition(name="apis_to_use", slug="api", description="Which API answers what."),
    ]
    assert choose_section(Lesson(text="Never ask twice."), own) == "strategies_and_hard_rules"
    assert choose_section(Lesson(text="The moon.", kind="insight"), own) == "OTHERS"
    assert choose_section(Lesson(text="The moon.", section="Apis to use"), own) == "apis_to_use"
    assert choose_section(Lesson(text="The moon.", section="nowhere"), own) == own[0].name


def ace() -> dict[str, str]:
    path = SHARED / "data" / "bullets_ace.jsonl"
    if not path.exists():
        pytest.skip("shared/data/bullets_ace.jsonl is not here")
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["id"].rsplit("/", 1)[1]: row["text"] for row in rows}


def test_no_hand_labeled_pair_is_merged_wrongly() -> None:
    """160 pairs of real ACE bullets; the curve is in docs/decisions/near-duplicates.md."""
    texts = ace()
    file = Path(__file__).parent / "ace_pairs.jsonl"
    marked = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    joined = [m for m in marked if fingerprint(texts[m["a"]]) == fingerprint(texts[m["b"]])]
    assert len(marked) >= 60
    assert all(m["same"] for m in joined)
    assert len(joined) >= 9
