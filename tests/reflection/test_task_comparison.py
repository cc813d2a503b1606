"""Attempts of one task, reflected on together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from httpx2 import AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.memories.index.drafts import prepare_memories
from memory_api.reflection.context import TaskLesson, load_task_knowledge, load_trace_context
from memory_api.reflection.lesson_storage import save_lessons
from memory_api.reflection.outside_text import OutsideTexts, guard_lessons
from memory_api.reflection.task_comparison import (
    MAX_LESSONS_PER_TASK,
    compare_attempts,
    comparison_drafts,
)
from memory_api.runtime import Runtime
from memory_api.trace_analysis.context import Attempt
from memory_api.traces.queries import get_trace
from memory_api.traces.schemas import Event, EventType, OutcomeType
from memory_api.traces.tools import ToolDefinition

Call = tuple[str, str]
WON, LOST = OutcomeType.SUCCESS, OutcomeType.FAILURE
LOOK: Call = ("get_order", '{"id": "7"}')
PAY: Call = ("send_refund", '{"id": "7", "amount": "10"}')
WRONG: Call = ("send_refund", '{"id": "7", "amount": "99"}')
CANCEL: Call = ("cancel_order", '{"id": "7"}')
TOOLS = [
    ToolDefinition(name="get_order", writes=False),
    ToolDefinition(name="send_refund", writes=True),
    ToolDefinition(name="cancel_order", writes=True),
]


def attempt(outcome: OutcomeType, *calls: Call, name: str = "t") -> Attempt:
    events = [Event(event_type=EventType.USER_MESSAGE, content="Please refund order 7")]
    for tool, arguments in calls:
        events.append(Event(event_type=EventType.TOOL_CALL, tool_name=tool, content=arguments))
        events.append(
            Event(event_type=EventType.TOOL_RESPONSE, tool_name=tool, content="all is well")
        )
    return Attempt(outcome, events, name, True, TOOLS)


def kinds(attempts: Sequence[Attempt], known: Sequence[TaskLesson] = ()) -> list[str]:
    return [lesson.kind for lesson in compare_attempts(attempts, known)]


def test_step_of_successes_only_is_lesson() -> None:
    attempts = [attempt(LOST, PAY), attempt(WON, LOOK, PAY, name="good"), attempt(WON, LOOK, PAY)]
    (lesson,) = compare_attempts(attempts)
    assert lesson.kind == "tool_used"
    assert "get_order" in lesson.text
    assert (lesson.trace_id, lesson.attempts) == ("t", 3)


def test_change_of_failures_only_and_differing_argument() -> None:
    attempts = [attempt(LOST, LOOK, WRONG, CANCEL), attempt(WON, LOOK, PAY)]
    assert kinds(attempts) == ["argument", "tool_held_back"]
    texts = " ".join(lesson.text for lesson in compare_attempts(attempts))
    assert "amount" in texts
    assert "cancel_order" in texts


def test_call_of_unknown_effect_is_not_called_a_change() -> None:
    attempts = [attempt(LOST, LOOK, WRONG, CANCEL), attempt(WON, LOOK, PAY)]
    unknown = [replace(one, tools=()) for one in attempts]
    assert kinds(unknown) == ["argument"]


def test_failed_tool_call_counts_as_use() -> None:
    failed = attempt(LOST, LOOK, PAY)
    broken = Event(event_type=EventType.TOOL_RESPONSE, content="Error: no such order")
    failed = Attempt(LOST, [*failed.events[:2], broken, *failed.events[3:]], "t", True, TOOLS)
    assert kinds([failed, attempt(WON, LOOK, PAY)]) == []


def test_mixed_usage_gives_no_lesson() -> None:
    attempts = [attempt(LOST, LOOK, PAY), attempt(WON, PAY), attempt(WON, LOOK, PAY)]
    assert kinds(attempts) == []
    assert kinds([attempt(WON, PAY), attempt(WON, LOOK, PAY)]) == []
    assert kinds([attempt(OutcomeType.PARTIAL, PAY), attempt(WON, LOOK, PAY)]) == []
    assert kinds([]) == []


def test_repeated_failures_give_lesson() -> None:
    assert kinds([attempt(LOST, LOOK, PAY)] * 2) == ["repeated"]
    assert kinds([attempt(LOST, LOOK), attempt(LOST, PAY)]) == []


def test_later_attempt_adds_no_fourth_lesson() -> None:
    attempts = [attempt(LOST, LOOK, WRONG, CANCEL), attempt(WON, LOOK, PAY)]
    known = [TaskLesson(lesson.text, True) for lesson in compare_attempts(attempts)]
    more = [*attempts, attempt(LOST, LOOK, WRONG, CANCEL)]
    assert {lesson.text for lesson in compare_attempts(more, known)} >= {x.text for x in known}
    full = [*known, TaskLesson("one", True), TaskLesson("more", False)]
    new = {lesson.text for lesson in compare_attempts(more, full)} - {x.text for x in full}
    assert new == set()
    assert len(compare_attempts(more, [TaskLesson("not of the group")])) == len(
        compare_attempts(more)
    )


CALLS = st.sampled_from([LOOK, PAY, WRONG, CANCEL])
ATTEMPTS = st.lists(
    st.builds(
        lambda outcome, calls: attempt(outcome, *calls),
        st.sampled_from(list(OutcomeType)),
        st.lists(CALLS, max_size=4),
    ),
    max_size=8,
)


@given(ATTEMPTS)
@settings(max_examples=100, deadline=None)
def test_at_most_three_lessons_per_task_in_any_order(attempts: list[Attempt]) -> None:
    known: list[TaskLesson] = []
    for n in range(1, len(attempts) + 1):
        lessons = compare_attempts(attempts[:n], known)
        assert len(lessons) <= MAX_LESSONS_PER_TASK
        assert lessons == compare_attempts(attempts[:n], known)
        have = {lesson.text for lesson in known}
        known += [TaskLesson(x.text, True) for x in lessons if x.text not in have]
    assert len(known) <= MAX_LESSONS_PER_TASK


def test_japanese_is_answered_in_japanese() -> None:
    def spoken(one: Attempt) -> Attempt:
        said = Event(event_type=EventType.USER_MESSAGE, content="注文の返金をお願いします。")
        return Attempt(one.outcome, [said, *one.events[1:]], one.trace_id, True)

    attempts = [spoken(attempt(LOST, PAY)), spoken(attempt(WON, LOOK, PAY))]
    (lesson,) = compare_attempts(attempts)
    assert "get_order" in lesson.text
    assert any("ぁ" <= letter <= "ん" for letter in lesson.text)


async def test_comparison_lesson_is_stored_once_and_recognized(
    api: AsyncClient, runtime: Runtime, tenant: Any
) -> None:
    async def send(outcome: OutcomeType, *calls: Call) -> UUID:
        body: dict[str, Any] = {"task_key": "refund", "outcome": outcome.value}
        one = attempt(outcome, *calls)
        body["events"] = [e.model_dump(mode="json", exclude_none=True) for e in one.events]
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
        assert sent.status_code == 201, sent.text
        return UUID(sent.json()["trace_id"])

    async def learn(trace_id: UUID) -> list[bool]:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            material = await load_trace_context(session, trace_id)
            known = await load_task_knowledge(session, material.trace)
            drafts = comparison_drafts(material, known.lessons)
            drafts = await guard_lessons(drafts, OutsideTexts())
        items = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), drafts)
        async with runtime.sessions.for_tenant(tenant.id) as session:
            kept = await save_lessons(session, items)
            trace = await get_trace(session, trace_id)
            assert trace is not None
            known = (await load_task_knowledge(session, trace)).lessons
        assert len(known) == 1
        assert known[0].of_group
        return [one.is_new for one in kept]

    first = await send(LOST, PAY)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert comparison_drafts(await load_trace_context(session, first), []) == []
    assert await learn(await send(WON, LOOK, PAY)) == [True]
    assert await learn(await send(WON, LOOK, PAY)) == [False]
    assert await learn(await send(LOST, PAY, PAY)) == [False]
