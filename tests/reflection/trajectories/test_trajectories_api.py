"""POST /api/v1/trajectories/reflect: a run of the service, with rules and with a model."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from memory_api.llm.prompts import packaged_prompt_directory
from memory_api.run_queue.port import Ticket
from memory_api.worker import process_ticket
from tests.support.junit import junit
from tests.support.model_service import Serve, Service
from tests.support.reflections import CAUSE, EXPLANATION, reflected
from tests.support.stub_provider import fenced, rate_limited, refusal, server_error, wrong_shape
from tests.support.trajectories import verdict

URL = "/api/v1/trajectories/reflect"
BULLETS = ("Read small files in one go.", "Never forget to close a file.")
LESSON = "Use splitlines for lines."
BOTH = (verdict("pat-00001", "helpful"), verdict("pat-00002", "neutral"))


def insight(rule: str = LESSON) -> dict[str, str]:
    """What the service makes of a rule of the model."""
    return {
        "reasoning": EXPLANATION,
        "error_identification": CAUSE,
        "root_cause_analysis": CAUSE,
        "correct_approach": rule,
        "key_insight": rule,
    }


def said(*rules: str, verdicts: Any = ()) -> Any:
    return reflected(*rules, cause=CAUSE, verdicts=verdicts)


def body(**changes: Any) -> dict[str, Any]:
    return {
        "trajectory": {
            "query": "Return the last n lines of a file.",
            "generated_answer": "open(p).read().split('\\n')[-n:]",
            "reasoning_steps": ["Split by line breaks.", "Take the last n."],
            "used_bullet_ids": ["pat-00001", "pat-00002"],
        },
        "dataset": "coding",
    } | changes


async def playbook(api: httpx2.AsyncClient, name: str = "coding") -> None:
    deltas = [{"type": "ADD", "section": "pat", "content": text} for text in BULLETS]
    answer = await api.post(f"/api/v1/playbooks/{name}/deltas", json={"deltas": deltas})
    answer.raise_for_status()


async def bullet(api: httpx2.AsyncClient, key: str, name: str = "coding") -> dict[str, Any]:
    return (await api.get(f"/api/v1/playbooks/{name}/bullets/{key}")).json()


async def votes(api: httpx2.AsyncClient, *keys: str) -> list[tuple[int, int, int]]:
    found = [await bullet(api, key) for key in keys or ("pat-00001", "pat-00002")]
    return [(one["helpful"], one["harmful"], one["neutral"]) for one in found]


async def reflect(service: Service, **changes: Any) -> dict[str, Any]:
    answer = await service.api.post(URL, json=body(**changes))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_insights_and_verdicts_are_stored(service: Service) -> None:
    await playbook(service.api)
    service.stub.behave = lambda call: said(LESSON, verdicts=BOTH)
    learnt = await reflect(service)
    assert learnt["insights"] == [insight()]
    assert learnt["bullet_evaluations"] == list(BOTH)
    assert (learnt["trajectory_dataset"], learnt["iteration_count"]) == ("coding", 1)
    assert (learnt["engine"], learnt["degraded"], learnt["error"]) == ("llm", False, None)
    assert len(service.stub.calls) == 1
    memory = await service.memory(learnt["insight_ids"][0])
    assert (memory["kind"], memory["layer"]) == ("insight", "rm")
    assert memory["content"] == insight()["key_insight"]
    assert {k: memory["metadata"][k] for k in insight()} == insight()
    assert memory["trace_id"] == learnt["trace_id"]
    assert await votes(service.api) == [(1, 0, 0), (0, 0, 1)]
    listed = await service.api.get("/api/v1/playbooks/coding/bullets/pat-00001/verdicts")
    assert [(one["judge"], one["tag"]) for one in listed.json()["items"]] == [("llm", "helpful")]
    run = await service.run(learnt["run_id"])
    shipped = packaged_prompt_directory() / "reflection" / "partial.txt"
    assert (run.kind, run.state, run.engine) == ("trajectory", "done", "llm")
    assert run.prompt_hash is not None
    assert run.usage["calls"] == 1
    assert service.stub.calls[0].system.startswith(shipped.read_text(encoding="utf-8")[:40])


async def test_insights_are_curated(service: Service) -> None:
    service.stub.behave = lambda call: said(LESSON)
    learnt = await reflect(service)
    step = await service.run(learnt["next_run_id"])
    assert (step.kind, step.state) == ("curate", "queued")
    assert step.input == {"playbook": "coding"}, "the insight waits in the inbox"
    assert step.parent_id is not None
    assert str(step.parent_id) == learnt["run_id"]
    alone = await reflect(service, dataset=None, test_report="x")
    assert alone["next_run_id"] is None


async def test_same_trajectory_counts_once(service: Service) -> None:
    await playbook(service.api)
    service.stub.behave = lambda call: said(LESSON, verdicts=BOTH)
    first = await reflect(service)
    assert await reflect(service) == first | {"duplicate": True}
    assert len(service.stub.calls) == 1
    assert await votes(service.api) == [(1, 0, 0), (0, 0, 1)]
    other = await reflect(service, test_report="1 passed")
    assert other["trace_id"] != first["trace_id"]
    assert (await service.memory(first["insight_ids"][0]))["observation_count"] == 2


async def test_insight_copied_from_playbook_is_no_lesson(service: Service) -> None:
    await playbook(service.api)
    copied = "READ small  files in one go."
    told = said(copied, "Sort before you cut.", verdicts=BOTH)
    service.stub.behave = lambda call: told
    learnt = await reflect(service)
    assert [one["key_insight"] for one in learnt["insights"]] == ["Sort before you cut.", copied]
    assert [one is None for one in learnt["insight_ids"]] == [False, True]
    listed = (await service.api.get("/api/v1/memories?kind=insight")).json()["items"]
    assert [one["content"] for one in listed] == ["Sort before you cut."]


async def test_service_analyzes_once(serve: Serve) -> None:
    service = await serve()
    await playbook(service.api)
    service.stub.behave = lambda call: said("When lines are cut, count them.", verdicts=BOTH)
    learnt = await reflect(service, max_iterations=10)
    assert (learnt["iteration_count"], len(service.stub.calls)) == (1, 1)
    for kind in ("reflection", "episode", "insight"):
        listed = await service.api.get(f"/api/v1/memories?kind={kind}")
        (memory,) = listed.json()["items"]
        assert memory["trace_id"] == learnt["trace_id"]


@pytest.mark.parametrize("fault", [server_error(), refusal(), wrong_shape(), rate_limited()])
async def test_failed_model_gives_empty_answer_and_retried_run(
    service: Service, fault: Any
) -> None:
    await playbook(service.api)
    service.stub.behave = lambda call: fault
    learnt = await reflect(service)
    assert (learnt["insights"], learnt["bullet_evaluations"]) == ([], [])
    assert (learnt["iteration_count"], learnt["degraded"]) == (0, True)
    run = await service.run(learnt["run_id"])
    assert (run.state, run.error["code"]) == ("queued", learnt["error"]["code"])
    assert await votes(service.api) == [(0, 0, 0), (0, 0, 0)]
    service.clock.now += 4000
    service.stub.behave = lambda call: said(LESSON, verdicts=BOTH)
    await service.deliver_ticket(run.id)
    assert (await service.run(run.id)).state == "done"
    assert await votes(service.api) == [(1, 0, 0), (0, 0, 1)]
    again = await reflect(service)
    assert (again["insights"], again["duplicate"]) == ([insight()], True)


async def test_fields_of_an_insight_come_from_the_model(serve: Serve) -> None:
    service = await serve()
    rule = {"when": "Before cutting lines", "do": "Use splitlines."}
    service.stub.behave = lambda call: reflected(cause=CAUSE, rules=[rule])
    (failed,) = (await reflect(service, test_report=junit(test_a="assert 1 == 2")))["insights"]
    assert failed["key_insight"] == "Before cutting lines, use splitlines."
    assert failed["correct_approach"] == "Use splitlines."
    assert failed["error_identification"] == failed["root_cause_analysis"] == CAUSE
    (passed,) = (await reflect(service, test_report=junit(3)))["insights"]
    assert (passed["error_identification"], passed["root_cause_analysis"]) == ("", CAUSE)


async def test_malformed_rule_costs_only_itself(serve: Serve) -> None:
    service = await serve()
    await playbook(service.api)
    rules: list[Any] = [{"do": LESSON}, {"when": 5}, 7]
    service.stub.queue(reflected(cause=CAUSE, verdicts=BOTH, rules=rules))
    learnt = await reflect(service)
    assert [one["key_insight"] for one in learnt["insights"]] == [LESSON]
    assert learnt["bullet_evaluations"] == list(BOTH)
    assert (learnt["engine"], learnt["degraded"]) == ("llm", False)
    assert len(service.stub.calls) == 1


async def test_verdicts_without_a_reflection_are_kept(serve: Serve) -> None:
    service = await serve()
    await playbook(service.api)
    service.stub.behave = lambda call: reflected(text="", verdicts=BOTH)
    learnt = await reflect(service)
    assert learnt["insights"] == []
    assert learnt["bullet_evaluations"] == list(BOTH)
    assert (learnt["engine"], learnt["degraded"]) == ("llm", False)
    assert "`root_cause` and `explanation` are empty" in service.stub.calls[1].user
    assert await votes(service.api) == [(1, 0, 0), (0, 0, 1)]
    assert (await service.api.get("/api/v1/memories?kind=reflection")).json()["items"] == []


async def test_verdicts_on_nothing_are_no_answer(serve: Serve) -> None:
    service = await serve()
    service.stub.behave = lambda call: reflected(text="", verdicts=BOTH)
    learnt = await reflect(service)
    assert (learnt["degraded"], learnt["error"]["code"]) == (True, "llm_unparseable")


async def test_request_repeated_during_retry_runs_once(serve: Serve) -> None:
    service = await serve()
    service.stub.behave = lambda call: refusal()
    failed = await reflect(service)
    again = await service.api.post(URL, json=body())
    assert again.status_code == 202
    assert again.json()["run_id"] == failed["run_id"]


async def test_repeated_request_after_failure_runs(serve: Serve) -> None:
    service = await serve(on_model_failure="fail")
    service.stub.behave = lambda call: refusal()
    assert (await service.api.post(URL, json=body())).status_code == 502
    service.stub.behave = lambda call: said(LESSON)
    assert (await reflect(service))["insights"] == [insight()]


async def test_fail_answers_502(serve: Serve) -> None:
    service = await serve(on_model_failure="fail")
    service.stub.behave = lambda call: refusal()
    answer = await service.api.post(URL, json=body())
    assert (answer.status_code, answer.json()["code"]) == (502, "llm_refused")
    assert [run.state for run in await service.runs()] == ["failed"]


async def test_async_request_is_run_by_worker(service: Service) -> None:
    await playbook(service.api)
    service.stub.behave = lambda call: said(LESSON, verdicts=BOTH)
    answer = await service.api.post(URL, json=body(), headers={"Prefer": "respond-async"})
    assert answer.status_code == 202
    run_id = answer.json()["run_id"]
    assert answer.headers["location"] == f"/api/v1/runs/{run_id}"
    assert (await service.api.post(URL, json=body())).status_code == 202
    await process_ticket(service.background, Ticket(service.tenant.id, run_id))
    assert (await service.run(run_id)).result["insights"] == [insight()]
    assert (await reflect(service))["duplicate"]
    assert await votes(service.api) == [(1, 0, 0), (0, 0, 1)]


async def test_idempotency_key_replays_answer(serve: Serve) -> None:
    service = await serve()
    service.stub.behave = lambda call: said(LESSON)
    named = {"Idempotency-Key": "one"}
    first = await service.api.post(URL, json=body(), headers=named)
    again = await service.api.post(URL, json=body(), headers=named)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert len(service.stub.calls) == 1


async def test_prompt_shows_known_lessons(serve: Serve) -> None:
    service = await serve()
    lesson = {
        "reflection_text": "The last lines of a file were read wrongly.",
        "strategy_text": "To return the last lines of a file use splitlines.",
    }
    (await service.api.post("/api/v1/reflections", json=lesson)).raise_for_status()
    service.stub.behave = lambda call: said(LESSON)
    await reflect(service)
    assert f"[L1] {lesson['strategy_text']}" in service.stub.calls[0].user


async def test_operator_template_of_playbook_wins(serve: Serve, tmp_path: Any) -> None:
    service = await serve(prompts_dir=tmp_path)
    folder = tmp_path / str(service.tenant.id) / "coding" / "reflection"
    folder.mkdir(parents=True)
    (folder / "partial.txt").write_text("Ours: {events}")
    service.stub.behave = lambda call: said(LESSON)
    await reflect(service)
    await reflect(service, dataset="another")
    ours, shipped = service.stub.calls
    assert ours.text.startswith("Ours: <events-")
    assert shipped.text.startswith("# A partially completed run")


@pytest.mark.parametrize(
    ("evidence", "outcome"),
    [
        ({"test_report": junit(test_a="assert 1 == 2")}, "failure"),
        ({"test_report": junit(3)}, "success"),
        ({"test_report": "==== 3 passed in 0.1s ===="}, None),
        ({"test_report": "FAILED t.py::test_a - assert 1 == 2"}, None),
        ({"ground_truth": "open(p).read().split('\\n')[-n:]"}, "success"),
        ({}, None),
    ],
)
async def test_outcome_follows_evidence(
    api: httpx2.AsyncClient, evidence: dict[str, Any], outcome: str | None
) -> None:
    learnt = (await api.post(URL, json=body(**evidence))).json()
    trace = (await api.get(f"/api/v1/traces/{learnt['trace_id']}")).json()
    assert trace["outcome"] == outcome
    if learnt["insight_ids"]:
        insight = (await api.get(f"/api/v1/memories/{learnt['insight_ids'][0]}")).json()
        assert ("partial" in insight["tags"], insight["outcome"]) == (False, outcome)
    assert trace["used_bullet_keys"] == ["pat-00001", "pat-00002"]
    assert [one["event_type"] for one in trace["events"]] == ["user_message"] + 3 * ["llm_response"]


async def test_rules_reflect_without_a_model(api: httpx2.AsyncClient) -> None:
    await playbook(api)
    report = junit(test_newline="assert ['b', ''] == ['a', 'b']")
    learnt = (await api.post(URL, json=body(test_report=report))).json()
    assert learnt["engine"] == "rules"
    assert learnt["insights"] == [], "no advice follows from a failed test alone"
    assert await votes(api) == [(0, 0, 0), (0, 0, 0)], "one failure proves nothing on a bullet"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"trajectory": {"query": "q"}}, "trajectory.generated_answer"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"max_iterations": 11}, "max_iterations"),
        ({"dataset": "a/b"}, "name"),
        ({"dataset": "x" * 129}, "dataset"),
        ({"ground_truth": {"a": 1}}, "ground_truth"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_invalid_input_is_reported_by_field(
    api: httpx2.AsyncClient, changes: dict[str, Any], field: str
) -> None:
    answer = await api.post(URL, json=body(**changes))
    assert answer.status_code == 422
    assert field in answer.text


async def test_playbook_and_dataset_are_aliases(api: httpx2.AsyncClient) -> None:
    await playbook(api)
    sent = body()
    sent["playbook"] = sent.pop("dataset")
    assert (await api.post(URL, json=sent)).json()["trajectory_dataset"] == "coding"
    own = body(trajectory=body()["trajectory"] | {"dataset": "coding"})
    del own["dataset"]
    learnt = (await api.post(URL, json=own)).json()
    assert learnt["trajectory_dataset"] == "coding"


async def test_playbook_of_request_wins(api: httpx2.AsyncClient) -> None:
    await playbook(api)
    sent = body(trajectory=body()["trajectory"] | {"dataset": "another"})
    assert (await api.post(URL, json=sent)).json()["trajectory_dataset"] == "coding"


async def test_unknown_playbook_has_no_bullets(serve: Serve) -> None:
    service = await serve()
    service.stub.behave = lambda call: fenced({"explanation": "Cut.", "rules": [LESSON]})
    learnt = await reflect(service, dataset="nobody-made-it")
    assert (len(learnt["insights"]), learnt["bullet_evaluations"]) == (1, [])
    assert len(service.stub.calls) == 1
