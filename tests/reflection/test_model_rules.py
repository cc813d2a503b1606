"""What becomes of the fields of a model's answer: rules, task hint, known lessons, cause."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import select

from memory_api.playbooks.tables import InboxLessonRow
from tests.support.model_service import Serve, Service, answer
from tests.support.model_service import trace as a_trace
from tests.support.stub_provider import Call, Reply

RULES = [
    {"when": "fetch times out", "do": "ask for the report in pages"},
    {"when": "a page is missing", "do": "fetch only that page again"},
]
ANSWER: dict[str, Any] = {
    "root_cause": "The agent repeated the fetch unchanged (e0001).",
    "explanation": "The second call met the same limit.",
    "cause_kind": "agent_mistake",
    "rules": RULES,
    "task_hint": "The report of March has 42 pages.",
    "importance": 0.5,
    "confidence": 0.9,
    "tags": ["fetch"],
    "source_event_ids": ["e0001"],
}
TEXTS = [
    "When fetch times out, ask for the report in pages.",
    "When a page is missing, fetch only that page again.",
]


def tell(service: Service, **changes: Any) -> None:
    service.stub.behave = lambda call: answer(ANSWER | changes)


@pytest.fixture
async def openai(serve: Serve) -> Service:
    return await serve()


async def strategies(service: Service) -> dict[str, dict[str, Any]]:
    found = await service.api.get("/api/v1/memories?kind=strategy&limit=50")
    return {item["content"]: item for item in found.json()["items"]}


async def test_each_rule_is_a_strategy(openai: Service) -> None:
    tell(openai)
    body = await openai.learn()
    assert body["reflection_text"] == f"{ANSWER['root_cause']} {ANSWER['explanation']}"
    assert (body["root_cause"], body["explanation"]) == (
        ANSWER["root_cause"],
        ANSWER["explanation"],
    )
    assert body["rules"] == TEXTS
    assert body["strategy_text"] == TEXTS[0]
    assert body["cause_kind"] == "agent_mistake"
    stored = await strategies(openai)
    assert set(stored) == set(TEXTS)
    assert [s["id"] for s in body["strategies"]] == [stored[text]["id"] for text in TEXTS]
    assert body["strategy_id"] == stored[TEXTS[0]]["id"]


async def test_task_hint_stays_with_the_reflection(openai: Service) -> None:
    tell(openai)
    body = await openai.learn(task_key="march", playbook="reports")
    assert body["task_hint"] == ANSWER["task_hint"]
    reflection = await openai.memory(body["reflection_id"])
    assert reflection["metadata"]["task_hint"] == ANSWER["task_hint"]
    assert ANSWER["task_hint"] not in await strategies(openai)
    async with openai.runtime.sessions.for_tenant(openai.tenant.id) as session:
        of_tenant = InboxLessonRow.tenant_id == openai.tenant.id
        waiting = list(await session.scalars(select(InboxLessonRow.memory_id).where(of_tenant)))
    lessons = {item["id"] for item in (await strategies(openai)).values()}
    assert set(map(str, waiting)) == lessons, "the curator gets the rules only"
    await openai.learn(task_key="march", task_description="Bring it again")
    assert f"- {ANSWER['task_hint']}" in openai.stub.calls[-1].user
    await openai.learn(task_key="april", task_description="Bring that of April")
    assert ANSWER["task_hint"] not in openai.stub.calls[-1].user


async def test_newer_task_hint_replaces_the_older_one(openai: Service) -> None:
    tell(openai)
    await openai.learn(task_key="march", playbook="reports")
    tell(openai, task_hint="The report of March has 43 pages.")
    await openai.learn(task_key="march", task_description="Bring it again")
    tell(openai, task_hint=None)
    for description in ("Bring it a third time", "Bring it a fourth time, please"):
        await openai.learn(task_key="march", task_description=description)
        assert "- “The report of March has” 43 pages." in openai.stub.calls[-1].user
        assert ANSWER["task_hint"] not in openai.stub.calls[-1].user


async def test_hint_of_a_reflection_that_repeats_one_of_another_task_is_kept(
    openai: Service,
) -> None:
    tell(openai)
    first = await openai.learn(task_key="march", playbook="reports")
    april = "The report of April has 7 pages."
    tell(openai, task_hint=april)
    again = await openai.learn(task_key="april", task_description="Bring that of April")
    assert again["reflection_id"] == first["reflection_id"], "it repeats the known one"
    for task, shown, hidden in (
        ("april", april, ANSWER["task_hint"]),
        ("march", ANSWER["task_hint"], april),
    ):
        await openai.learn(task_key=task, task_description=f"Bring the report of {task} once more")
        assert f"- {shown}" in openai.stub.calls[-1].user
        assert hidden not in openai.stub.calls[-1].user
        tell(openai, task_hint=None)


async def test_person_deletes_a_task_hint_with_its_memory(openai: Service) -> None:
    tell(openai)
    body = await openai.learn(task_key="march", playbook="reports")
    await openai.api.delete(f"/api/v1/memories/{body['reflection_id']}")
    await openai.learn(task_key="march", task_description="Bring it again")
    assert ANSWER["task_hint"] not in openai.stub.calls[-1].user


async def test_success_without_a_comparison_claims_no_cause(openai: Service) -> None:
    tell(openai, cause_kind="agent_decision")
    ok = [
        {"event_type": "user_message", "content": "Bring the report of May"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": '{"month": "May"}'},
        {"event_type": "tool_response", "tool_name": "fetch", "content": "Report of May: 12"},
        {"event_type": "llm_response", "content": "The report of May has 12 lines."},
    ]
    body = await openai.learn(events=ok, outcome="success", error=None, task_key="may")
    assert body["cause_kind"] is None
    tell(openai)
    await openai.learn(task_key="june", task_description="Bring June")
    tell(openai, cause_kind="agent_decision")
    body = await openai.learn(events=ok, outcome="success", error=None, task_key="june")
    assert body["cause_kind"] == "agent_decision"


@pytest.mark.parametrize("kind", ["outside_agent_control", "expected_result_conflicts_with_policy"])
async def test_some_causes_give_no_rule(openai: Service, kind: str) -> None:
    tell(openai, cause_kind=kind)
    body = await openai.learn(playbook="reports", outcome="failure")
    assert (body["cause_kind"], body["rules"], body["strategy_text"]) == (kind, [], None)
    assert body["task_hint"] == ANSWER["task_hint"]
    assert await strategies(openai) == {}
    assert body["next_run_id"] is None


async def test_luck_teaches_what_not_to_rely_on(openai: Service) -> None:
    """The schema and the prompt allow it as well (tests/llm: the prompts state no other rule)."""
    rule = {"when": "two reports have the same month", "do": "compare their years"}
    tell(openai, cause_kind="succeeded_by_luck", rules=[rule])
    body = await openai.learn(playbook="reports", outcome="success")
    assert body["cause_kind"] == "succeeded_by_luck"
    assert body["rules"] == ["When two reports have the same month, compare their years."]
    assert "what not to rely on" in openai.stub.calls[-1].system


async def test_known_lesson_gets_an_observation(openai: Service) -> None:
    tell(openai)
    first = await openai.learn()
    before = (await strategies(openai))[TEXTS[0]]
    tell(openai, rules=[], same_as="[L1]", explanation="Once more.")
    again = await openai.learn(task_description="Bring the monthly report again")
    shown = openai.stub.calls[-1]
    lessons = {line[:4]: line[5:] for line in shown.user.splitlines() if line.startswith("[L")}
    assert set(lessons.values()) == set(TEXTS), "whole, with IDs"
    confirmed = lessons["[L1]"]
    assert again["confirmed_lesson_ids"] == [(await strategies(openai))[confirmed]["id"]]
    after = (await strategies(openai))[confirmed]
    assert after["observation_count"] == 2
    assert before["observation_count"] == 1
    assert len(await strategies(openai)) == 2
    assert first["confirmed_lesson_ids"] == []


async def test_only_lessons_of_the_same_tools_are_shown(openai: Service) -> None:
    tell(openai)
    await openai.learn()
    other = [dict(event) for event in a_trace()["events"]]
    for event in other:
        if "tool_name" in event:
            event["tool_name"] = "print"
    await openai.learn(events=other, task_description="Bring the monthly report, please")
    call = openai.stub.calls[-1]
    assert "Known lessons" not in call.user
    assert "same_as" not in call.schema["properties"]  # type: ignore[index]


async def test_runs_without_tools_see_only_lessons_of_their_playbook(openai: Service) -> None:
    tell(openai)
    talk = [{"event_type": "user_message", "content": "Tell me of the monthly report."}]
    await openai.learn(events=talk, playbook="chat")
    await openai.learn(events=talk, playbook="poems", task_description="Write of the report")
    assert "Known lessons" not in openai.stub.calls[-1].user
    await openai.learn(events=talk, playbook="chat", task_description="Talk of the report")
    assert f"[L1] {TEXTS[0]}" in openai.stub.calls[-1].user


async def test_copies_of_a_known_lesson_are_shown_once(openai: Service) -> None:
    tell(openai, rules=[RULES[0]])
    await openai.learn(task_key="march")
    again = {"when": "the fetch times out", "do": "ask for the report in pages"}
    tell(openai, rules=[again], explanation="Once more.")
    await openai.learn(task_key="april", task_description="Bring that of April")
    await openai.learn(task_key="may", task_description="Bring that of May")
    shown = [line for line in openai.stub.calls[-1].user.splitlines() if line.startswith("[L")]
    assert len(shown) == 1


async def test_known_lessons_are_shown_as_the_bullet_that_they_became(openai: Service) -> None:
    merged = {"section": "oth", "when_to_use": "When fetch is slow", "content": "Ask for pages."}

    def behave(call: Call) -> Reply:
        if "operations" not in (call.schema or {}).get("properties", {}):
            return answer(ANSWER)
        return answer({"operations": [{"type": "ADD", "lessons": [1, 2], **merged}]})

    openai.stub.behave = behave
    body = a_trace(playbook="reports", task_key="march") | {"task_description": "Bring it"}
    (await openai.api.post("/api/v1/traces?reflect=always", json=body)).raise_for_status()
    while await openai.deliver_due_tickets():
        pass
    again = body | {"task_description": "Bring it again", "events": body["events"][:2]}
    (await openai.api.post("/api/v1/traces?reflect=always", json=again)).raise_for_status()
    await openai.deliver_due_tickets()
    await openai.deliver_due_tickets()
    shown = [line for line in openai.stub.calls[-1].user.splitlines() if line.startswith("[L")]
    assert shown == ["[L1] When fetch is slow: Ask for pages."], "one bullet for two lessons"


async def test_one_shared_tool_of_several_is_not_enough(openai: Service) -> None:
    def calls(*tools: str) -> list[dict[str, Any]]:
        return [{"event_type": "tool_call", "tool_name": tool, "content": "x"} for tool in tools]

    tell(openai)
    await openai.learn(events=calls("calculate", "book", "cancel"))
    await openai.learn(events=calls("calculate", "ship", "pack"), task_description="Ship it")
    assert "Known lessons" not in openai.stub.calls[-1].user
    await openai.learn(events=calls("calculate", "book", "ship"), task_description="Book it")
    assert f"[L1] {TEXTS[0]}" in openai.stub.calls[-1].user


async def test_rejected_lessons_are_not_shown(openai: Service) -> None:
    def behave(call: Call) -> Reply:
        if "operations" not in (call.schema or {}).get("properties", {}):
            return answer(ANSWER)
        reject = {"type": "REJECT", "lessons": [1, 2], "reasoning": "It holds for one file."}
        return answer({"operations": [reject]})

    openai.stub.behave = behave
    body = a_trace(playbook="reports", task_key="march") | {"task_description": "Bring it"}
    (await openai.api.post("/api/v1/traces?reflect=always", json=body)).raise_for_status()
    while await openai.deliver_due_tickets():
        pass
    await openai.learn(task_key="april", task_description="Bring that of April")
    assert "Known lessons" not in openai.stub.calls[-1].user


async def test_ratings_are_not_called_the_right_answer(openai: Service) -> None:
    async def shown_for(truth: dict[str, Any]) -> str:
        body = a_trace(task_description=f"Bring it: {len(str(truth))}") | {"ground_truth": truth}
        sent = await openai.api.post("/api/v1/traces?reflect=always", json=body)
        sent.raise_for_status()
        await openai.deliver_due_tickets()
        await openai.deliver_due_tickets()
        return openai.stub.calls[-1].user

    tell(openai)
    for truth in ({"satisfaction": 4, "coherence": 5}, {"tool_calls": 2}):
        shown = await shown_for(truth)
        assert "Right answer" not in shown
        assert "It is not the right answer" in shown
        assert next(iter(truth)) in shown
    assert "Right answer, which the agent did not see:" in await shown_for({"answer": "42 pages"})


async def test_tools_that_an_event_lists_are_not_denied(openai: Service) -> None:
    tell(openai)
    listed = {"event_type": "system_event", "content": "Tools: fetch(path), post(path, body)"}
    await openai.learn(events=[listed, *a_trace()["events"]])
    shown = openai.stub.calls[-1].user
    assert "Other tools" not in shown, "the events show the tools of the run"


async def test_importance_of_a_success_has_a_scale_of_its_own(openai: Service) -> None:
    tell(openai, cause_kind="agent_decision")
    await openai.learn(outcome="success")
    system = openai.stub.calls[-1].system
    assert "would spoil many runs" not in system
    assert ".9 if many runs need it" in system


async def test_sections_without_content_are_left_out(openai: Service) -> None:
    tell(openai)
    await openai.learn(error=None, task_goal=None)
    call = openai.stub.calls[0]
    for heading in (
        "Goal, which",
        "Right answer",
        "Test report",
        "Earlier attempts",
        "Bullets of advice",
    ):
        assert heading not in call.user, heading
    assert "harmful" not in call.text
    assert "(none)" not in call.text
    assert "verdicts" not in call.schema["properties"]  # type: ignore[index]
    for remark in ("mark what was shortened", "Several agents", "same_as"):
        assert remark not in call.text, remark
    long = {"event_type": "tool_response", "content": "word " * 100}
    await openai.learn(
        events=[
            {**a_trace()["events"][0], "agent": "Planner"},
            long,
            long,
            {"event_type": "llm_response", "content": "a", "agent": "Planner"},
            {"event_type": "llm_response", "content": "b", "agent": "Coder"},
        ]
    )
    shown = openai.stub.calls[-1].user
    assert "mark what was shortened" in shown
    assert re.search(r"Several agents worked .*\n<agents-\w+>\nPlanner \(1\), Coder \(1\)\n", shown)


async def test_goal_is_marked_as_possibly_unseen(openai: Service) -> None:
    tell(openai)
    await openai.learn()
    assert "Goal, which the agent may not have seen:" in openai.stub.calls[0].user


async def test_tools_are_shown_with_their_effect(openai: Service) -> None:
    tell(openai)
    tools = [
        {"name": "fetch", "description": "Fetch a\n report.", "writes": False},
        {"name": "send", "writes": True},
        {"name": "print"},
    ]
    await openai.learn(tools=tools)
    shown = openai.stub.calls[0].user
    assert (
        "- fetch (only reads): Fetch a report.\n- send (changes data)\n- print (effect unknown)"
        in shown
    )


@pytest.mark.parametrize("score", [85, -1, "high", None])
async def test_score_out_of_bounds_is_asked_again(openai: Service, score: Any) -> None:
    openai.stub.queue(answer(ANSWER | {"importance": score}))
    tell(openai, importance=0.4)
    body = await openai.learn()
    assert (body["engine"], body["importance"]) == ("llm", 0.4)
    assert len(openai.stub.calls) == 2
    assert "- importance:" in openai.stub.calls[1].user


async def test_improved_run_stores_all_rules(serve: Serve) -> None:
    """The rules stood in for the model; the later run has more strategies than they had."""
    service = await serve()
    from tests.support.stub_provider import server_error  # noqa: PLC0415

    service.stub.behave = lambda call: server_error()
    body = await service.learn()
    assert body["degraded"] is True
    tell(service)
    await service.deliver_ticket(body["next_run_id"])
    assert set(TEXTS) <= set(await strategies(service))
