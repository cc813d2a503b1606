"""The decision on each lesson."""

from __future__ import annotations

from memory_api.curation.decision_log import list_decisions
from memory_api.curation.schemas import Decisions, KnownLesson, ProposedChange, RejectedLesson
from memory_api.playbooks.models import DeltaContextItem, DeltaResult


def add(content: str, *lessons: int) -> ProposedChange:
    delta = DeltaContextItem(
        type="ADD", section="others", bullet_id=None, content=content, reasoning="New."
    )
    return ProposedChange(delta=delta, lessons=list(lessons), by_model=True)


def test_both_bullets_of_a_lesson_with_two_pieces_are_decisions() -> None:
    plan = Decisions([add("Price all segments.", 0, 1), add("Keep one cabin.", 1)], [], [])
    results = [
        DeltaResult(index=0, type="ADD", action="added", key="pat-00001"),
        DeltaResult(index=1, type="ADD", action="added", key="mis-00001"),
    ]
    assert [(d.lesson, d.key) for d in list_decisions(plan, results)] == [
        (0, "pat-00001"),
        (1, "pat-00001"),
        (1, "mis-00001"),
    ]


def test_change_takes_precedence_over_other_decisions() -> None:
    rejected = RejectedLesson(reason="Only one run.", lessons=[0, 1], remember=True)
    known = [KnownLesson(lesson=n, key="pat-00009", reason="") for n in (0, 1, 2)]
    plan = Decisions([add("Price all segments.", 0)], known, [rejected])
    results = [DeltaResult(index=0, type="ADD", action="added", key="pat-00001")]
    assert sorted((d.lesson, d.decision) for d in list_decisions(plan, results)) == [
        (0, "added"),
        (1, "rejected"),
        (2, "already_known"),
    ]
