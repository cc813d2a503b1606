"""The pure parts, as properties: what cleaning lets through can be applied, at most ten, and pinned
bullets stand; what tells near lessons apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.core.ids import new_id
from memory_api.curation.context import CurationContext
from memory_api.curation.curate import propose_changes
from memory_api.curation.lesson_duplicates import (
    NearbyBullet,
    find_contradictions,
    find_duplicates,
    is_duplicate,
)
from memory_api.curation.model_output import ModelCuration, validate_operations
from memory_api.curation.rebase import (
    MAX_PLAN_DELTAS,
    CurrentPlaybook,
    drop_inapplicable,
    rebase_plan,
)
from memory_api.curation.rules import (
    add_delta,
    choose_section,
    classify_advice,
    decide_by_rules,
    split_condition,
)
from memory_api.curation.schemas import CurationPlan, Lesson, ProposedChange
from memory_api.playbooks.deltas import apply_deltas
from memory_api.playbooks.models import Bullet, DeltaContextItem, RevisionHint
from memory_api.playbooks.sections import SectionDefinition
from memory_api.playbooks.state import PlaybookState
from memory_api.text.differences import contradicts, find_difference
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
        hints=st.lists(
            st.builds(RevisionHint, key=KEY, action=st.just("revise"), when_to_use=TEXT), max_size=1
        ),
    ),
    min_size=1,
    max_size=14,
)


def view_of(state: PlaybookState, lessons: list[Lesson]) -> CurationContext:
    near = [NearbyBullet(bullet, new_id(), 0.9) for bullet in state.bullets.values()]
    return CurationContext(1, state, [near] * len(lessons))


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
    fresh = [NearbyBullet(b, new_id()) for k, b in now.bullets.items() if then.bullets.get(k) != b]
    changed = frozenset(near.bullet.id for near in fresh)
    renewed = rebase_plan(curation, CurrentPlaybook(now, fresh, changed))
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


@settings(max_examples=100)
@given(TEXT, TEXT)
def test_same_advice_is_symmetric(a: str, b: str) -> None:
    assert is_duplicate(a, b) == is_duplicate(b, a)
    assert contradicts(a, b) == contradicts(b, a)
    assert find_difference(a, a) is None


@each_case(
    ("a", "b", "why"),
    [
        ("Retry the call.", "Do not retry the call.", "negation"),
        ("予約を送り直す。", "予約を送り直さない。", "negation"),
        ("Take the most listened song.", "Take the least listened song.", "opposites"),
        ("Follow the artist first.", "Unfollow the artist first.", "opposites"),
        ("最大の値を選ぶ。", "最小の値を選ぶ。", "opposites"),
        ("Wait 5 seconds.", "Wait 50 seconds.", "numbers"),
        ("Read like_count of a song.", "Read play_count of a song.", "names"),
        ("Call getUser() before.", "Call getOrder() before.", "names"),
        ("Run it with --force on.", "Run it with --quiet on.", "names"),
        ("Look into setup.cfg first.", "Look into tox.ini first.", "names"),
        ("Ask for the order number.", "Ask for the phone number.", "subject"),
        ("先にホテルを予約する。", "先に飛行機を予約する。", "subject"),
        ("Send the name (here Paris).", "Send the name (here London).", None),
        ("Retry 3 times (e.g. 5 s apart).", "Retry 3 times (e.g. 9 s apart).", None),
        ("1) log in, 2) ask", "1) log in 2) ask 3) ask", None),
        ("Don't send it if it won't arrive.", "Do not send it if it can't arrive.", None),
        ("Use show_album to list songs.", "Use show_album() to list the songs.", None),
        ("必ず在庫を確認する。", "在庫を必ず確認すること。", None),
    ],
)
def test_differences_between_lessons(a: str, b: str, why: str | None) -> None:
    assert find_difference(a, b) == why
    assert find_difference(b, a) == why


@each_case(
    ("a", "b", "against"),
    [
        ("Always retry the call at once.", "Never retry the call at once.", True),
        ("Use show_album to list songs.", "Do not use show_album to list songs.", True),
        ("電話番号を必ず聞き直すようにする。", "電話番号を聞き直さないようにする。", True),
        ("Always retry the call at once.", "Never book the flight at once.", False),
        ("Retry 3 times, always.", "Never retry 9 times.", False),
        ("Take the most listened song.", "Take the least listened song.", False),
        ("Retry the call.", "Retry the call.", False),
    ],
)
def test_contradictions(a: str, b: str, against: bool) -> None:
    assert contradicts(a, b) is against
    near = [NearbyBullet(Bullet(id="pat-00001", section="", content=a), new_id())]
    assert bool(find_contradictions(b, near)) is against


@each_case(
    ("text", "kind"),
    [
        ("When an upload times out, split the file.", "pat"),
        ("Check the stock before booking.", "pat"),
        ("Never send the same call twice.", "mis"),
        ("When an export fails, do not repeat it unchanged.", "mis"),
        ("The customer prefers short answers.", "pref"),
        ("利用者は短い答えを好む。", "pref"),
        ("show_album() returns song_ids as a list.", "ctx"),
        ("The billing API requires a project id.", "ctx"),
        ("検索が空のときは、表記を変えて送り直す。", "pat"),
        ("同じ予約を二回送らないこと。", "mis"),
        ("The moon.", "oth"),
    ],
)
def test_section_of_lesson(text: str, kind: str) -> None:
    assert classify_advice(text) == kind


def test_requested_section_is_used_else_chosen() -> None:
    own = [
        SectionDefinition(name="strategies_and_hard_rules", slug="shr"),
        SectionDefinition(name="common_mistakes", slug="cms"),
        SectionDefinition(name="apis_to_use", slug="api", description="Which API answers what."),
    ]
    assert choose_section(Lesson(text="Never ask twice."), own) == "common_mistakes"
    assert (
        choose_section(Lesson(text="When it fails, stop early."), own)
        == "strategies_and_hard_rules"
    )
    assert choose_section(Lesson(text="show_album() returns ids."), own) == "apis_to_use"
    assert choose_section(Lesson(text="The moon."), own) == "OTHERS"
    assert choose_section(Lesson(text="The moon.", section="Apis to use"), own) == "apis_to_use"


def test_conditions() -> None:
    assert split_condition("When it rains, take a coat.") == ("When it rains", "take a coat.")
    assert split_condition("取れないときは、分をずらす。") == ("取れないときは", "分をずらす。")
    assert split_condition("Take a coat.") == ("", "Take a coat.")


def test_lesson_keeps_its_title_unless_part_of_text() -> None:
    text = "When it rains, take a coat."
    assert add_delta(Lesson(text=text), [], "new").title is None
    assert add_delta(Lesson(text=text, title="Rain"), [], "new").title == "Rain"


def ace() -> dict[str, str]:
    path = SHARED / "data" / "bullets_ace.jsonl"
    if not path.exists():
        pytest.skip("shared/data/bullets_ace.jsonl is not here")
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["id"].rsplit("/", 1)[1]: row["text"] for row in rows}


def test_hand_labeled_pairs_are_rarely_merged_wrongly() -> None:
    """160 pairs of real ACE bullets; the curve is in docs/decisions/near-duplicates.md."""
    texts = ace()
    file = Path(__file__).parent / "ace_pairs.jsonl"
    marked = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    joined = [m for m in marked if is_duplicate(texts[m["a"]], texts[m["b"]])]
    wrong = [m for m in joined if not m["same"]]
    assert len(marked) >= 60
    assert len(wrong) <= 2
    assert len(joined) - len(wrong) >= 25


def test_most_similar_bullet_comes_first() -> None:
    near = [
        NearbyBullet(
            Bullet(id="pat-00001", section="", content="Split a large file into parts now."),
            new_id(),
        ),
        NearbyBullet(
            Bullet(id="pat-00002", section="", content="Split a large file into parts."), new_id()
        ),
    ]
    found = find_duplicates("Split a large file into parts.", near)
    assert [n.bullet.id for n in found] == ["pat-00002", "pat-00001"]


def test_example_with_brackets_makes_no_other_lesson() -> None:
    said = "When a try failed, do not open with its first call again (here {}): start elsewhere."
    assert is_duplicate(
        said.format("get_user(user_id=omar)"), said.format("calculate(a=1200 - (500))")
    )
    assert not is_duplicate(said.format("x"), said.format("x").replace("do not open", "open"))
