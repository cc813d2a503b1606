"""The clients with a real HTTP server: results, lists, waiting, and sending many traces."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from uuid import UUID

import pytest

from hansei import AsyncHansei, Hansei, HanseiError
from hansei._flows import Item, follow_agent_run
from hansei.errors import APITimeoutError
from hansei.models import AgentRun
from tests.sdk.stub_service import KEY, RECORDED, StubService

EVENTS = [{"event_type": "tool_call", "tool_name": "f", "content": "x"}]


def traces(number: int) -> list[dict[str, object]]:
    return [{"id": f"t{n}", "events": EVENTS, "outcome": "failure"} for n in range(1, number + 1)]


def test_method_returns_the_response_body(hansei: Hansei, service: StubService) -> None:
    found = hansei.memories.search("refund", top_k=3, kinds=["strategy"], project_id=None)
    assert [hit.model_dump() for hit in found.results] == [RECORDED["hit"]]
    call = service.calls[0]
    assert (call.method, call.path) == ("POST", "/api/v1/search")
    # None is omitted, so the default of the service applies.
    assert call.json == {"query_text": "refund", "top_k": 3, "kinds": ["strategy"]}
    assert call.headers["authorization"] == f"Bearer {KEY}"


def test_only_writes_carry_an_idempotency_key(hansei: Hansei, service: StubService) -> None:
    hansei.memories.get("m1")
    hansei.memories.search("x")
    hansei.reflections.query()
    assert all("idempotency-key" not in call.headers for call in service.calls)
    service.calls.clear()
    hansei.memories.update("m1", importance=0.9)
    hansei.memories.delete("m1", reason="wrong")
    hansei.reflections.generate(EVENTS, "failure")
    hansei.traces.create(events=EVENTS)
    keys = [call.headers["idempotency-key"] for call in service.calls]
    assert len(set(keys)) == len(keys) == 4


def test_enqueue_asks_for_an_asynchronous_response(hansei: Hansei, service: StubService) -> None:
    accepted = hansei.reflections.enqueue(EVENTS, "failure")
    assert accepted.model_dump() == RECORDED["accepted"]
    assert service.calls[0].headers["prefer"] == "respond-async"
    assert hansei.reflections.generate(EVENTS, "failure").result == "stored"
    assert service.calls[1].headers["prefer"].startswith("wait=")


def test_update_may_set_a_field_to_null(hansei: Hansei, service: StubService) -> None:
    hansei.memories.update("m1", title=None)
    assert service.calls[0].json == {"title": None}


def test_ids_are_escaped_in_the_path(hansei: Hansei, service: StubService) -> None:
    hansei.memories.get("../keys?x=1")
    assert service.calls[0].path == "/api/v1/memories/..%2Fkeys%3Fx%3D1"


def test_ids_are_encoded_as_strings(hansei: Hansei, service: StubService) -> None:
    key = UUID(int=7)
    hansei.traces.create(events=EVENTS, session_id=key)
    assert service.calls[0].json["session_id"] == str(key)


def test_lists_read_all_pages(hansei: Hansei, service: StubService) -> None:
    service.pace = 1000
    list(hansei.traces.create_many(traces(450)))
    assert list(hansei.runs.list(state=["queued"])) == []  # the stub finishes runs at each poll
    service.calls.clear()
    runs = list(hansei.runs.list(state=["done"], kind="reflect"))
    assert [run.id for run in runs] == [f"run-{n}" for n in range(450, 0, -1)]
    assert len(service.calls) == 3
    page = hansei.runs.list(state=["done"], kind="reflect", limit=450)
    assert [len(page.items), page.has_next_page()] == [200, True]
    last = page.next_page().next_page()
    assert [len(last.items), last.has_next_page()] == [50, False]


def test_limit_is_the_number_of_items(hansei: Hansei, service: StubService) -> None:
    service.event_count = 500
    assert len(list(hansei.traces.events.list("t1", limit=2))) == 2
    assert len(list(hansei.traces.events.list("t1", limit=250))) == 250
    assert [call.query["limit"] for call in service.calls] == [["2"], ["200"], ["200"]]


def test_events_and_revisions_are_paged(hansei: Hansei, service: StubService) -> None:
    service.event_count = 450
    events = list(hansei.traces.events.list("t1"))
    assert [event.event_id for event in events] == [f"e{n:04}" for n in range(450)]
    assert [call.query.get("cursor") for call in service.calls] == [None, ["200"], ["400"]]
    assert {call.path for call in service.calls} == {"/api/v1/traces/t1/events"}
    assert [each.revision for each in hansei.memories.revisions.list("m1")] == [1, 2]


def test_lists_repeat_a_query_parameter_and_flags_are_lower_case(
    hansei: Hansei, service: StubService
) -> None:
    list(hansei.runs.list(state=["dead", "failed"], limit=7))
    assert service.calls[0].query == {"state": ["dead", "failed"], "limit": ["7"]}
    with pytest.raises(HanseiError):  # the stub has no playbooks
        hansei.playbooks.apply_deltas("pay", [], dry_run=True)
    assert service.calls[1].query == {"dry_run": ["true"]}
    assert service.calls[1].json == {"deltas": []}


def test_list_fetches_only_the_pages_that_are_read(hansei: Hansei, service: StubService) -> None:
    list(hansei.traces.create_many(traces(5)))
    list(hansei.runs.poll_unfinished(["run-1"]))
    service.calls.clear()
    runs = hansei.runs.list(state=["done"])
    assert next(iter(runs)).id == "run-5"
    assert len(service.calls) == 1


def test_create_traces_sends_batches_and_yields_one_receipt_per_trace(
    hansei: Hansei, service: StubService
) -> None:
    answers = list(hansei.traces.create_many(traces(250), reflect="always"))
    assert [answer.line for answer in answers] == list(range(1, 251))
    assert answers[249].run_id == "run-250"
    sent = [call.body.count(b"\n") + 1 for call in service.calls]
    assert sent == [100, 100, 50]
    assert service.calls[0].query == {"reflect": ["always"]}
    assert len({call.headers["idempotency-key"] for call in service.calls}) == 3


def test_lines_with_transient_errors_are_retried(hansei: Hansei, service: StubService) -> None:
    service.no_room = {"t-2": "queue_full", "t-4": "unavailable", "t-5": "forbidden"}
    many = [trace | {"id": f"t-{n}"} for n, trace in enumerate(traces(6), start=1)]
    answers = list(hansei.traces.create_many(many))
    assert [answer.line for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert [answer.trace_id for answer in answers] == [
        *("trace-t-1", "trace-t-2", "trace-t-3", "trace-t-4", None, "trace-t-6"),
    ]
    assert answers[4].error["code"] == "forbidden"
    assert [call.body.count(b"\n") + 1 for call in service.calls] == [6, 2]


def test_create_traces_reads_its_source_lazily(hansei: Hansei, service: StubService) -> None:
    read: list[int] = []

    def slow() -> object:
        for n, trace in enumerate(traces(300), start=1):
            read.append(n)
            yield trace

    answers = hansei.traces.create_many(slow())  # pyright: ignore[reportArgumentType]
    next(answers)
    answers.close()
    assert len(read) <= 101


def test_rejected_trace_does_not_affect_the_others(
    hansei: Hansei, service: StubService, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    good = json.dumps(traces(1)[0])
    file.write_text(f'{good}\n\n{{"id": "empty"}}\n{{"broken\n{good}\n')
    answers = list(hansei.traces.create_many(file))
    assert [answer.line for answer in answers] == [1, 3, 4, 5]
    assert [answer.error is not None for answer in answers] == [False, True, True, False]
    assert answers[3].duplicate is True


def test_line_over_the_limit_is_rejected_without_sending_it(
    hansei: Hansei, service: StubService
) -> None:
    huge = {"id": "huge", "events": [{"event_type": "tool_call", "content": "x" * 17 * 2**20}]}
    answers = list(hansei.traces.create_many([traces(1)[0], huge, traces(2)[1]]))
    assert [(answer.error or {}).get("code") for answer in answers] == [None, "too_large", None]
    assert sum(len(call.body) for call in service.calls) < 2**20


def test_project_and_playbook_override_the_traces(
    hansei: Hansei, service: StubService, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(
        json.dumps(traces(1)[0] | {"project_id": "theirs", "kept": 1.5}) + "\nnot json\n"
    )
    list(hansei.traces.create_many(file, project_id="mine", playbook="book"))
    first, second = service.calls[0].body.split(b"\n")
    assert json.loads(first) | {"events": None} == {
        "id": "t1", "outcome": "failure", "kept": 1.5, "events": None,
        "project_id": "mine", "playbook": "book",
    }  # fmt: skip
    assert second == b"not json"  # the service rejects it


def test_wait_for_run_returns_the_finished_run(hansei: Hansei, service: StubService) -> None:
    list(hansei.traces.create_many(traces(1)))
    assert hansei.runs.wait("run-1").state == "done"
    assert service.paths().count("GET /api/v1/runs/run-1") == 2


def test_wait_for_run_times_out(hansei: Hansei, service: StubService) -> None:
    list(hansei.traces.create_many(traces(1)))
    with pytest.raises(APITimeoutError, match=r"still running after 0\.05 s"):
        hansei.runs.wait("run-1", timeout=0.05)


def test_many_runs_are_polled_with_the_list(hansei: Hansei, service: StubService) -> None:
    service.pace = 200
    sent = list(hansei.traces.create_many(traces(450)))
    ids = {run_id for each in sent if (run_id := each.run_id)}
    service.calls.clear()
    looks = [len(left) for left in hansei.runs.poll_unfinished(ids)]
    assert looks == [250, 50, 0]
    runs = {run.id: run for run in hansei.runs.collect_finished(ids)}
    assert set(runs) == ids
    assert all(run.state == "done" for run in runs.values())
    assert len(service.calls) <= 2 + 1 + 1 + 3
    assert {call.path for call in service.calls} == {"/api/v1/runs"}


def test_old_finished_runs_are_fetched_one_by_one(hansei: Hansei, service: StubService) -> None:
    list(hansei.traces.create_many(traces(900)))
    list(hansei.runs.poll_unfinished(["run-1"]))
    service.calls.clear()
    assert [run.id for run in hansei.runs.collect_finished(["run-1"])] == ["run-1"]
    assert service.paths()[-1] == "GET /api/v1/runs/run-1"
    assert len(service.calls) == 4


def test_no_runs_need_no_request(hansei: Hansei, service: StubService) -> None:
    assert list(hansei.runs.poll_unfinished([])) == []
    assert list(hansei.runs.collect_finished([])) == []
    assert service.calls == []


async def test_async_client_has_the_same_methods(
    async_hansei: AsyncHansei, service: StubService
) -> None:
    sent = [each async for each in async_hansei.traces.create_many(traces(150), reflect="always")]
    assert len(sent) == 150
    assert (await async_hansei.runs.wait("run-1")).state == "done"
    looks = [left async for left in async_hansei.runs.poll_unfinished({"run-2", "run-150"})]
    assert looks[-1] == set()
    assert {run.id async for run in async_hansei.runs.collect_finished({"run-2"})} == {"run-2"}
    assert [hit.model_dump() for hit in (await async_hansei.memories.search("x")).results] == [
        RECORDED["hit"]
    ]
    assert [memory.model_dump() async for memory in async_hansei.memories.list()] == [
        RECORDED["memory"]
    ]
    with pytest.raises(HanseiError) as caught:
        await async_hansei.runs.get("no-such-run")
    assert caught.value.status == 404


def test_methods_have_a_signature_and_a_docstring() -> None:
    client = Hansei("http://127.0.0.1:1", "k")
    assert client.memories.search.__name__ == "search"
    assert "top_k: Maximum number" in (client.memories.search.__doc__ or "")
    assert {"query_text", "top_k", "options"} <= set(
        inspect.signature(client.memories.search).parameters
    )
    client.close()


def test_follow_chain_yields_every_run(hansei: Hansei, service: StubService) -> None:
    (sent,) = hansei.traces.create_many([{"id": "a", "events": [{}], "teaches": "Ask in pages"}])
    assert list(hansei.runs.poll_unfinished({sent.run_id}))[-1] == set()
    followed = list(hansei.runs.follow(sent.run_id))
    assert [run.kind for run in followed] == ["reflect", "apply"]
    assert {run.id for run in hansei.runs.collect_finished([sent.run_id])} == {
        run.id for run in followed
    }


def test_last_events_of_a_followed_run_are_not_missed() -> None:
    """The run ends between the request for its events and the one for its state."""
    flow = follow_agent_run("0190d2c4-6f5e-7a31-9c11-3a55d6f0aa08")
    last = 'id: 9\nevent: run_finished\ndata: {"state": "done"}\n\n'
    next(flow)
    flow.send("")
    flow.send(AgentRun(state="done"))
    item = flow.send(last)
    assert isinstance(item, Item)
    assert (item.value.id, item.value.event) == (9, "run_finished")
    next(flow)
    flow.send("")
    flow.send(AgentRun(state="done"))
    with pytest.raises(StopIteration):
        flow.send("")
