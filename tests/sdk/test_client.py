"""The clients with a real HTTP server: results, lists, waiting, and sending many traces."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from uuid import UUID

import pytest

from hansei import AsyncHansei, Hansei, HanseiError
from hansei._flows import Item, follow_agent_run
from hansei.client import Methods
from hansei.errors import TimedOut
from tests.sdk.stub_service import KEY, RECORDED, StubService

EVENTS = [{"event_type": "tool_call", "tool_name": "f", "content": "x"}]


def traces(number: int) -> list[dict[str, object]]:
    return [{"id": f"t{n}", "events": EVENTS, "outcome": "failure"} for n in range(1, number + 1)]


def test_method_returns_the_response_body(hansei: Hansei, service: StubService) -> None:
    found = hansei.search_memories("refund", top_k=3, kinds=["strategy"], project_id=None)
    assert found["results"] == [RECORDED["hit"]]
    call = service.calls[0]
    assert (call.method, call.path) == ("POST", "/api/v1/search")
    # None is omitted, so the default of the service applies.
    assert call.json == {"query_text": "refund", "top_k": 3, "kinds": ["strategy"]}
    assert call.headers["authorization"] == f"Bearer {KEY}"


def test_only_writes_carry_an_idempotency_key(hansei: Hansei, service: StubService) -> None:
    hansei.get_memory("m1")
    hansei.search_memories("x")
    hansei.query_reflections()
    assert all("idempotency-key" not in call.headers for call in service.calls)
    service.calls.clear()
    hansei.update_memory("m1", importance=0.9)
    hansei.delete_memory("m1", reason="wrong")
    hansei.generate_reflection(EVENTS, "failure")
    hansei.create_trace({"events": EVENTS})
    keys = [call.headers["idempotency-key"] for call in service.calls]
    assert len(set(keys)) == len(keys) == 4


def test_wait_false_asks_for_an_asynchronous_response(hansei: Hansei, service: StubService) -> None:
    assert hansei.generate_reflection(EVENTS, "failure", wait=False) == RECORDED["accepted"]
    assert service.calls[0].headers["prefer"] == "respond-async"
    assert hansei.generate_reflection(EVENTS, "failure").get("result") == "stored"
    assert service.calls[1].headers["prefer"].startswith("wait=")


def test_update_may_set_a_field_to_null(hansei: Hansei, service: StubService) -> None:
    hansei.update_memory("m1", title=None)
    assert service.calls[0].json == {"title": None}


def test_ids_are_escaped_in_the_path(hansei: Hansei, service: StubService) -> None:
    hansei.get_memory("../keys?x=1")
    assert service.calls[0].path == "/api/v1/memories/..%2Fkeys%3Fx%3D1"


def test_ids_are_encoded_as_strings(hansei: Hansei, service: StubService) -> None:
    key = UUID(int=7)
    hansei.create_trace({"events": EVENTS, "session_id": key})
    assert service.calls[0].json["session_id"] == str(key)


def test_lists_read_all_pages(hansei: Hansei, service: StubService) -> None:
    list(hansei.create_traces(traces(5)))
    service.calls.clear()
    runs = list(hansei.list_runs(state=["queued"], limit=2))
    assert [run["id"] for run in runs] == []  # the stub finishes runs at each poll
    runs = list(hansei.list_runs(state=["done"], kind="reflect", limit=2))
    assert [run["id"] for run in runs] == ["run-5", "run-4", "run-3", "run-2", "run-1"]
    assert len(service.calls) == 1 + 3


def test_events_and_revisions_are_paged(hansei: Hansei, service: StubService) -> None:
    service.event_count = 5
    events = list(hansei.list_trace_events("t1", limit=2))
    assert [event["event_id"] for event in events] == [f"e{n:04}" for n in range(5)]
    assert [call.query.get("cursor") for call in service.calls] == [None, ["2"], ["4"]]
    assert {call.path for call in service.calls} == {"/api/v1/traces/t1/events"}
    assert [each["revision"] for each in hansei.list_memory_revisions("m1", limit=1)] == [1, 2]


def test_lists_repeat_a_query_parameter_and_flags_are_lower_case(
    hansei: Hansei, service: StubService
) -> None:
    list(hansei.list_runs(state=["dead", "failed"], limit=7))
    assert service.calls[0].query == {"state": ["dead", "failed"], "limit": ["7"]}
    with pytest.raises(HanseiError):  # the stub has no playbooks
        hansei.apply_deltas("pay", [], dry_run=True)
    assert service.calls[1].query == {"dry_run": ["true"]}
    assert service.calls[1].json == {"deltas": []}


def test_list_fetches_only_the_pages_that_are_read(hansei: Hansei, service: StubService) -> None:
    list(hansei.create_traces(traces(5)))
    list(hansei._unfinished_runs(["run-1"]))
    service.calls.clear()
    runs = hansei.list_runs(state=["done"], limit=2)
    assert next(runs)["id"] == "run-5"
    runs.close()
    assert len(service.calls) == 1


def test_create_traces_sends_batches_and_yields_one_receipt_per_trace(
    hansei: Hansei, service: StubService
) -> None:
    answers = list(hansei.create_traces(traces(250), reflect="always"))
    assert [answer.get("line") for answer in answers] == list(range(1, 251))
    assert answers[249].get("run_id") == "run-250"
    sent = [call.body.count(b"\n") + 1 for call in service.calls]
    assert sent == [100, 100, 50]
    assert service.calls[0].query == {"reflect": ["always"]}
    assert len({call.headers["idempotency-key"] for call in service.calls}) == 3


def test_lines_with_transient_errors_are_retried(hansei: Hansei, service: StubService) -> None:
    service.no_room = {"t-2": "queue_full", "t-4": "unavailable", "t-5": "forbidden"}
    many = [trace | {"id": f"t-{n}"} for n, trace in enumerate(traces(6), start=1)]
    answers = list(hansei.create_traces(many))
    assert [answer.get("line") for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert [answer.get("trace_id") for answer in answers] == [
        *("trace-t-1", "trace-t-2", "trace-t-3", "trace-t-4", None, "trace-t-6"),
    ]
    assert answers[4].get("error", {})["code"] == "forbidden"
    assert [call.body.count(b"\n") + 1 for call in service.calls] == [6, 2]


def test_create_traces_reads_its_source_lazily(hansei: Hansei, service: StubService) -> None:
    read: list[int] = []

    def slow() -> object:
        for n, trace in enumerate(traces(300), start=1):
            read.append(n)
            yield trace

    answers = hansei.create_traces(slow())  # pyright: ignore[reportArgumentType]
    next(answers)
    answers.close()
    assert len(read) <= 101


def test_rejected_trace_does_not_affect_the_others(
    hansei: Hansei, service: StubService, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    good = json.dumps(traces(1)[0])
    file.write_text(f'{good}\n\n{{"id": "empty"}}\n{{"broken\n{good}\n')
    answers = list(hansei.create_traces(file))
    assert [answer.get("line") for answer in answers] == [1, 3, 4, 5]
    assert ["error" in answer for answer in answers] == [False, True, True, False]
    assert answers[3].get("duplicate") is True


def test_line_over_the_limit_is_rejected_without_sending_it(
    hansei: Hansei, service: StubService
) -> None:
    huge = {"id": "huge", "events": [{"event_type": "tool_call", "content": "x" * 17 * 2**20}]}
    answers = list(hansei.create_traces([traces(1)[0], huge, traces(2)[1]]))
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, "too_large", None]
    assert sum(len(call.body) for call in service.calls) < 2**20


def test_project_and_playbook_override_the_traces(
    hansei: Hansei, service: StubService, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(
        json.dumps(traces(1)[0] | {"project_id": "theirs", "kept": 1.5}) + "\nnot json\n"
    )
    list(hansei.create_traces(file, project_id="mine", playbook="book"))
    first, second = service.calls[0].body.split(b"\n")
    assert json.loads(first) | {"events": None} == {
        "id": "t1", "outcome": "failure", "kept": 1.5, "events": None,
        "project_id": "mine", "playbook": "book",
    }  # fmt: skip
    assert second == b"not json"  # the service rejects it


def test_wait_for_run_returns_the_finished_run(hansei: Hansei, service: StubService) -> None:
    list(hansei.create_traces(traces(1)))
    assert hansei.wait_for_run("run-1")["state"] == "done"
    assert service.paths().count("GET /api/v1/runs/run-1") == 2


def test_wait_for_run_times_out(hansei: Hansei, service: StubService) -> None:
    list(hansei.create_traces(traces(1)))
    with pytest.raises(TimedOut, match=r"still running after 0\.05 s"):
        hansei.wait_for_run("run-1", timeout=0.05)


def test_many_runs_are_polled_with_the_list(hansei: Hansei, service: StubService) -> None:
    service.pace = 200
    sent = list(hansei.create_traces(traces(450)))
    ids = {run_id for each in sent if (run_id := each.get("run_id"))}
    service.calls.clear()
    looks = [len(left) for left in hansei._unfinished_runs(ids)]
    assert looks == [250, 50, 0]
    runs = {run["id"]: run for run in hansei._finished_runs(ids)}
    assert set(runs) == ids
    assert all(run["state"] == "done" for run in runs.values())
    assert len(service.calls) <= 2 + 1 + 1 + 3
    assert {call.path for call in service.calls} == {"/api/v1/runs"}


def test_old_finished_runs_are_fetched_one_by_one(hansei: Hansei, service: StubService) -> None:
    list(hansei.create_traces(traces(900)))
    list(hansei._unfinished_runs(["run-1"]))
    service.calls.clear()
    assert [run["id"] for run in hansei._finished_runs(["run-1"])] == ["run-1"]
    assert service.paths()[-1] == "GET /api/v1/runs/run-1"
    assert len(service.calls) == 4


def test_no_runs_need_no_request(hansei: Hansei, service: StubService) -> None:
    assert list(hansei._unfinished_runs([])) == []
    assert list(hansei._finished_runs([])) == []
    assert service.calls == []


async def test_async_client_has_the_same_methods(
    async_hansei: AsyncHansei, service: StubService
) -> None:
    sent = [each async for each in async_hansei.create_traces(traces(150), reflect="always")]
    assert len(sent) == 150
    assert (await async_hansei.wait_for_run("run-1"))["state"] == "done"
    looks = [left async for left in async_hansei._unfinished_runs({"run-2", "run-150"})]
    assert looks[-1] == set()
    assert {run["id"] async for run in async_hansei._finished_runs({"run-2"})} == {"run-2"}
    assert (await async_hansei.search_memories("x"))["results"] == [RECORDED["hit"]]
    assert [memory async for memory in async_hansei.list_memories()] == [RECORDED["memory"]]
    with pytest.raises(HanseiError) as caught:
        await async_hansei.get_run("no-such-run")
    assert caught.value.status == 404


def test_methods_have_the_name_and_docstring_of_their_function() -> None:
    client = Hansei("http://127.0.0.1:1", "k")
    assert client.search_memories.__name__ == "search_memories"
    assert "hybrid search" in (client.search_memories.__doc__ or "")
    assert list(inspect.signature(client.search_memories).parameters) == ["query_text", "options"]
    assert "hybrid search" in (Methods.search_memories.__doc__ or "")
    client.close()


def test_follow_chain_yields_every_run(hansei: Hansei, service: StubService) -> None:
    (sent,) = hansei.create_traces([{"id": "a", "events": [{}], "teaches": "Ask in pages"}])
    assert list(hansei._unfinished_runs({sent["run_id"]}))[-1] == set()
    followed = list(hansei.follow_chain(sent["run_id"]))
    assert [run["kind"] for run in followed] == ["reflect", "apply"]
    assert {run["id"] for run in hansei._finished_runs([sent["run_id"]])} == {
        run["id"] for run in followed
    }


def test_last_events_of_a_followed_run_are_not_missed() -> None:
    """The run ends between the request for its events and the one for its state."""
    flow = follow_agent_run("0190d2c4-6f5e-7a31-9c11-3a55d6f0aa08")
    last = 'id: 9\nevent: run_finished\ndata: {"state": "done"}\n\n'
    next(flow)
    flow.send("")
    flow.send({"state": "done"})
    item = flow.send(last)
    assert isinstance(item, Item)
    assert (item.value["id"], item.value["event"]) == (9, "run_finished")
    next(flow)
    flow.send("")
    flow.send({"state": "done"})
    with pytest.raises(StopIteration):
        flow.send("")
