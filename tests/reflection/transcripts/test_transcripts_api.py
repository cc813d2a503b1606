"""POST /api/v1/transcripts/reflect: a run of the service, with rules and with a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memory_api.run_queue.port import Ticket
from memory_api.worker import process_ticket
from tests.reflection.trajectories.test_trajectories_api import playbook, votes
from tests.support.model_service import Serve, Service
from tests.support.reflections import reflected
from tests.support.stub_provider import answer, broken_body, refusal, server_error
from tests.support.transcripts import tag

URL = "/api/v1/transcripts/reflect"
MESSAGES = [
    {"role": "user", "content": "Show me the config."},
    {"role": "assistant", "content": "I read it in one go, as [pat-00001] says."},
    {"role": "user", "content": "What about [pat-00002]?"},
]
GOOD: dict[str, Any] = {"analysis": "The file was read at once.", "bullet_tags": [tag("pat-00001")]}
MORE = [
    {"role": "assistant", "content": "Then it went wrong; [pat-00001] misled me."},
    {"role": "user", "content": "A pity."},
]


def says(service: Service, *tags: dict[str, str], analysis: str = "Told.") -> None:
    service.stub.behave = lambda call: reflected(text=analysis, verdicts=tags)


async def send(service: Service, **changes: Any) -> dict[str, Any]:
    body = {"messages": MESSAGES, "playbook": "coding"} | changes
    answered = await service.api.post(URL, json=body)
    assert answered.status_code == 200, answered.text
    return answered.json()


@pytest.fixture
async def coding(service: Service) -> Service:
    """A service whose tenant has the playbook, and whose model finds pat-00001 helpful."""
    await playbook(service.api)
    says(service, *GOOD["bullet_tags"], analysis=GOOD["analysis"])
    return service


async def test_analysis_and_tags_are_returned_and_stored(coding: Service) -> None:
    learnt = await send(coding)
    assert (learnt["analysis"], learnt["bullet_tags"]) == (GOOD["analysis"], GOOD["bullet_tags"])
    assert learnt["cited_ids"] == ["pat-00001"], "what the person writes is no citation"
    assert learnt["counted_bullet_keys"] == ["pat-00001"]
    assert (learnt["engine"], learnt["degraded"]) == ("llm", False)
    assert await votes(coding.api) == [(1, 0, 0), (0, 0, 0)]
    memory = await coding.memory(learnt["reflection_id"])
    assert (memory["kind"], memory["content"]) == ("reflection", GOOD["analysis"])
    run = await coding.run(learnt["run_id"])
    assert (run.kind, run.state, run.usage["calls"]) == ("transcript", "done", 1)
    listed = await coding.api.get("/api/v1/playbooks/coding/bullets/pat-00001/verdicts")
    (verdict,) = listed.json()["items"]
    assert (verdict["judge"], verdict["reason"]) == ("llm", "Applied.")


async def test_prompt_shows_the_used_bullets_and_the_messages(coding: Service) -> None:
    await send(coding)
    shown = coding.stub.calls[0].user
    assert "[pat-00001] (cited): Read small files in one go." in shown
    assert "Never forget to close a file." not in shown
    assert "llm_response: I read it in one go" in shown


async def test_prompt_separates_title_condition_and_advice(coding: Service) -> None:
    changes = {"title": "Short inputs", "when_to_use": "a file has less than 1 MB."}
    url = "/api/v1/playbooks/coding/bullets/pat-00001"
    assert (await coding.api.patch(url, json=changes)).status_code == 200
    await send(coding)
    line = "Short inputs. When a file has less than 1 MB: Read small files in one go."
    assert f"[pat-00001] (cited): {line}\n" in coding.stub.calls[0].user


async def test_same_transcript_counts_once(coding: Service) -> None:
    first = await send(coding)
    again = await send(coding)
    assert again == first | {"duplicate": True}
    assert len(coding.stub.calls) == 1
    assert await votes(coding.api) == [(1, 0, 0), (0, 0, 0)]
    await send(coding, messages=[*MESSAGES, *MORE])
    assert (await votes(coding.api))[0] == (2, 0, 0), "another session, as far as one can see"


async def test_extended_session_counts_once(coding: Service) -> None:
    """Sent before it is compacted, and again at its end: the later look replaces the first."""
    first = await send(coding, session_id="s1")
    says(coding, tag("pat-00001", "harmful", "In the end it misled the agent."))
    grown = await send(coding, messages=[*MESSAGES, *MORE], session_id="s1")
    assert grown["trace_id"] != first["trace_id"]
    assert await votes(coding.api) == [(0, 1, 0), (0, 0, 0)]
    await send(coding, messages=[*MESSAGES, *MORE], session_id="s1")
    assert await votes(coding.api) == [(0, 1, 0), (0, 0, 0)]
    await send(coding, messages=[*MESSAGES, *MORE], session_id="s2")
    assert (await votes(coding.api))[0] == (0, 2, 0)


async def test_unrecorded_tags_can_be_recorded_later(
    coding: Service,
) -> None:
    looked = await send(coding, record_verdicts=False)
    assert (looked["bullet_tags"], looked["counted_bullet_keys"]) == (GOOD["bullet_tags"], [])
    assert await votes(coding.api) == [(0, 0, 0), (0, 0, 0)]
    applied = await send(coding)
    assert applied["counted_bullet_keys"] == ["pat-00001"]
    assert await votes(coding.api) == [(1, 0, 0), (0, 0, 0)]
    assert (await send(coding, record_verdicts=False))["duplicate"]


async def test_given_bullet_ids_are_used(coding: Service) -> None:
    says(coding, tag("pat-2", "helpful"), tag("pat-00001"))
    learnt = await send(coding, cited_ids=["pat-00002", "nonsense"])
    assert learnt["cited_ids"] == ["pat-00002", "nonsense"]
    assert [one["name"] for one in learnt["bullet_tags"]] == ["pat-00002", "pat-00001"]
    assert set(learnt["counted_bullet_keys"]) == {"pat-00001", "pat-00002"}, (
        "one is named, the other cited"
    )


async def test_without_citations_content_is_matched(coding: Service) -> None:
    says(coding, tag("pat-00001"), tag("pat-00002"), tag("oth-00009"))
    messages = [
        {"role": "user", "content": "Show me the config."},
        {"role": "assistant", "content": "I read the small files in one go; here they are."},
    ]
    learnt = await send(coding, messages=messages)
    assert learnt["cited_ids"] == []
    assert [one["name"] for one in learnt["bullet_tags"]] == ["pat-00001"], (
        "the agent did nothing that pat-00002 speaks of"
    )
    assert learnt["counted_bullet_keys"] == ["pat-00001"]


async def test_legacy_and_short_ids_are_resolved(coding: Service) -> None:
    messages = [{"role": "assistant", "content": "By [pat-1] and [kpt_007]."}]
    learnt = await send(coding, messages=messages)
    assert learnt["cited_ids"] == ["pat-1", "kpt_007"]
    assert learnt["counted_bullet_keys"] == ["pat-00001"]


@pytest.mark.parametrize("fault", [server_error(), refusal(), broken_body(), answer("no JSON")])
async def test_failed_model_gives_empty_answer_and_retried_run(coding: Service, fault: Any) -> None:
    coding.stub.behave = lambda call: fault
    learnt = await send(coding)
    assert (learnt["analysis"], learnt["bullet_tags"]) == ("", [])
    assert learnt["cited_ids"] == ["pat-00001"]
    assert learnt["degraded"]
    run = await coding.run(learnt["run_id"])
    assert (run.state, run.error["code"]) == ("queued", learnt["error"]["code"])
    coding.clock.now += 4000
    says(coding, *GOOD["bullet_tags"], analysis=GOOD["analysis"])
    await coding.deliver_ticket(run.id)
    assert (await coding.run(run.id)).result["analysis"] == GOOD["analysis"]
    assert await votes(coding.api) == [(1, 0, 0), (0, 0, 0)]


async def test_fail_answers_502(serve: Serve) -> None:
    service = await serve(on_model_failure="fail")
    service.stub.behave = lambda call: refusal()
    answered = await service.api.post(URL, json={"messages": MESSAGES})
    assert (answered.status_code, answered.json()["code"]) == (502, "llm_refused")


async def test_async_request_is_run_by_worker(coding: Service) -> None:
    body = {"messages": MESSAGES, "playbook": "coding"}
    answered = await coding.api.post(URL, json=body, headers={"Prefer": "respond-async"})
    assert answered.status_code == 202
    run_id = answered.json()["run_id"]
    await process_ticket(coding.background, Ticket(coding.tenant.id, run_id))
    assert (await coding.run(run_id)).result["bullet_tags"] == GOOD["bullet_tags"]
    assert (await send(coding))["duplicate"]
    assert await votes(coding.api) == [(1, 0, 0), (0, 0, 0)]


async def test_without_playbook_no_tags(coding: Service) -> None:
    for name in (None, "nobody-made-it"):
        learnt = await send(coding, playbook=name)
        assert (learnt["analysis"], learnt["bullet_tags"]) == (GOOD["analysis"], [])
    assert await votes(coding.api) == [(0, 0, 0), (0, 0, 0)]


async def test_inactive_bullets_are_not_tagged(coding: Service) -> None:
    patch = {"status": "quarantined"}
    url = "/api/v1/playbooks/coding/bullets/pat-00001"
    (await coding.api.patch(url, json=patch)).raise_for_status()
    learnt = await send(coding)
    assert learnt["bullet_tags"] == []
    assert "Read small files" not in coding.stub.calls[0].user


async def test_secrets_are_neither_stored_nor_shown(coding: Service) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    says(coding, analysis=f"It printed {secret}")
    messages = [{"role": "assistant", "content": f"The key is {secret}."}]
    learnt = await send(coding, messages=messages)
    trace = await coding.api.get(f"/api/v1/traces/{learnt['trace_id']}")
    assert secret not in coding.stub.calls[0].text + json.dumps(learnt) + trace.text


async def test_rules_write_an_analysis_without_a_model(api: httpx2.AsyncClient) -> None:
    await playbook(api)
    messages = [
        {"role": "user", "content": "Run the tests."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"cmd": "pytst"}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": "pytst: command not found",
                    "is_error": True,
                }
            ],
        },
    ]
    body = {"messages": messages, "playbook": "coding"}
    learnt = (await api.post(URL, json=body)).json()
    assert learnt["engine"] == "rules"
    assert "command not found" in learnt["analysis"]
    quiet = (await api.post(URL, json={"messages": MESSAGES, "playbook": "coding"})).json()
    assert (quiet["analysis"], quiet["reflection_id"]) == ("", None)
    assert quiet["cited_ids"] == ["pat-00001"]
    assert await votes(api) == [(0, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": ["text"]}, "messages"),
        ({"playbook": "a/b"}, "name"),
        ({"cited_ids": "pat-1"}, "cited_ids"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_invalid_input_is_reported_by_field(
    api: httpx2.AsyncClient, changes: dict[str, Any], field: str
) -> None:
    answered = await api.post(URL, json={"messages": MESSAGES} | changes)
    assert answered.status_code == 422
    assert field in answered.text


async def test_real_sessions_store_trace(api: httpx2.AsyncClient, shared: Path) -> None:
    for path in sorted((shared / "data" / "transcripts").rglob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if isinstance(line, dict)]
        answered = await api.post(URL, json={"messages": lines})
        assert answered.status_code == 200, (path.name, answered.text)
        url = f"/api/v1/traces/{answered.json()['trace_id']}"
        trace = (await api.get(url)).json()
        assert trace["event_count"] == len(trace["events"]) > 1
