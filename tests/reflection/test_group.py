"""Attempts of one task, reflected on together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from httpx2 import AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.memory_api.memory.prepare import prepare
from apps.memory_api.reflection.findings.schemas import Attempt
from apps.memory_api.reflection.group import (
    MOST,
    TaskLesson,
    group_block,
    group_drafts,
    group_lessons,
    task_lessons,
)
from apps.memory_api.reflection.material import load
from apps.memory_api.reflection.store import keep
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.queries import get_trace
from apps.memory_api.traces.schemas import Event, EventType, OutcomeType

Call = tuple[str, str]
WON, LOST = OutcomeType.SUCCESS, OutcomeType.FAILURE
LOOK: Call = ("get_order", '{"id": "7"}')
PAY: Call = ("send_refund", '{"id": "7", "amount": "10"}')
WRONG: Call = ("send_refund", '{"id": "7", "amount": "99"}')
CANCEL: Call = ("cancel_order", '{"id": "7"}')


def attempt(outcome: OutcomeType, *calls: Call, name: str = "t") -> Attempt:
    events = [Event(event_type=EventType.USER_MESSAGE, content="Please refund order 7")]
    for tool, arguments in calls:
        events.append(Event(event_type=EventType.TOOL_CALL, tool_name=tool, content=arguments))
        events.append(
            Event(event_type=EventType.TOOL_RESPONSE, tool_name=tool, content="all is well")
        )
    return Attempt(outcome, events, name, True)


def kinds(attempts: Sequence[Attempt], known: Sequence[TaskLesson] = ()) -> list[str]:
    return [lesson.kind for lesson in group_lessons(attempts, known)]


def test_what_only_successes_used() -> None:
    attempts = [attempt(LOST, PAY), attempt(WON, LOOK, PAY, name="good"), attempt(WON, LOOK, PAY)]
    (lesson,) = group_lessons(attempts)
    assert lesson.kind == "tool_used"
    assert "get_order" in lesson.text
    assert (lesson.trace_id, lesson.attempts) == ("t", 3)


def test_what_only_failures_changed_and_the_argument_that_differed() -> None:
    attempts = [attempt(LOST, LOOK, WRONG, CANCEL), attempt(WON, LOOK, PAY)]
    assert kinds(attempts) == ["argument", "tool_held_back"]
    texts = " ".join(lesson.text for lesson in group_lessons(attempts))
    assert "amount" in texts
    assert "cancel_order" in texts


def test_a_tool_that_failed_was_used_all_the_same() -> None:
    failed = attempt(LOST, LOOK, PAY)
    broken = Event(event_type=EventType.TOOL_RESPONSE, content="Error: no such order")
    failed = Attempt(LOST, [*failed.events[:2], broken, *failed.events[3:]], "t", True)
    assert kinds([failed, attempt(WON, LOOK, PAY)]) == []


def test_what_some_did_on_both_sides_teaches_nothing() -> None:
    attempts = [attempt(LOST, LOOK, PAY), attempt(WON, PAY), attempt(WON, LOOK, PAY)]
    assert kinds(attempts) == []
    assert kinds([attempt(WON, PAY), attempt(WON, LOOK, PAY)]) == []
    assert kinds([attempt(OutcomeType.PARTIAL, PAY), attempt(WON, LOOK, PAY)]) == []
    assert kinds([]) == []


def test_failures_that_repeat_each_other() -> None:
    assert kinds([attempt(LOST, LOOK, PAY)] * 2) == ["repeated"]
    assert kinds([attempt(LOST, LOOK), attempt(LOST, PAY)]) == []


def test_a_later_attempt_says_the_same_words_and_adds_no_fourth() -> None:
    attempts = [attempt(LOST, LOOK, WRONG, CANCEL), attempt(WON, LOOK, PAY)]
    known = [TaskLesson(lesson.text, True) for lesson in group_lessons(attempts)]
    more = [*attempts, attempt(LOST, LOOK, WRONG, CANCEL)]
    assert {lesson.text for lesson in group_lessons(more, known)} >= {x.text for x in known}
    full = [*known, TaskLesson("one", True), TaskLesson("more", False)]
    new = {lesson.text for lesson in group_lessons(more, full)} - {x.text for x in full}
    assert new == set()
    assert len(group_lessons(more, [TaskLesson("not of the group")])) == len(group_lessons(more))


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
@settings(max_examples=150, deadline=None)
def test_never_more_than_three_for_a_task_however_they_arrive(attempts: list[Attempt]) -> None:
    known: list[TaskLesson] = []
    for n in range(1, len(attempts) + 1):
        lessons = group_lessons(attempts[:n], known)
        assert len(lessons) <= MOST
        assert lessons == group_lessons(attempts[:n], known)
        have = {lesson.text for lesson in known}
        known += [TaskLesson(x.text, True) for x in lessons if x.text not in have]
    assert len(known) <= MOST


def test_the_block_for_a_prompt_shows_both_sides() -> None:
    attempts = [attempt(LOST, WRONG, CANCEL), attempt(WON, LOOK, PAY)]
    block = group_block(attempts)
    assert "1 attempts succeeded, 1 did not." in block
    assert "Used only by attempts that succeeded: get_order" in block
    assert "Used only by attempts that did not succeed: cancel_order" in block
    assert group_block(attempts[:1]) == ""


def test_japanese_is_answered_in_japanese() -> None:
    def spoken(one: Attempt) -> Attempt:
        said = Event(event_type=EventType.USER_MESSAGE, content="注文の返金をお願いします。")
        return Attempt(one.outcome, [said, *one.events[1:]], one.trace_id, True)

    attempts = [spoken(attempt(LOST, PAY)), spoken(attempt(WON, LOOK, PAY))]
    (lesson,) = group_lessons(attempts)
    assert "get_order" in lesson.text
    assert any("ぁ" <= letter <= "ん" for letter in lesson.text)


async def test_a_lesson_of_the_group_is_kept_once_and_known_again(
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
        async with runtime.sessions.tenant(tenant.id) as session:
            material = await load(session, trace_id)
            drafts = group_drafts(material, await task_lessons(session, material.trace))
        items = await prepare(await runtime.embedder_of(tenant.id), drafts)
        async with runtime.sessions.tenant(tenant.id) as session:
            kept = await keep(session, items)
            trace = await get_trace(session, trace_id)
            assert trace is not None
            known = await task_lessons(session, trace)
        assert len(known) == 1
        assert known[0].of_group
        return [one.new for one in kept]

    first = await send(LOST, PAY)
    async with runtime.sessions.tenant(tenant.id) as session:
        assert group_drafts(await load(session, first), []) == []
    assert await learn(await send(WON, LOOK, PAY)) == [True]
    assert await learn(await send(WON, LOOK, PAY)) == [False]
    assert await learn(await send(LOST, PAY, PAY)) == [False]
