"""The clients against a real HTTP server: values, lists, waiting, sending many."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from uuid import UUID

import pytest

from hansei import AsyncHansei, Hansei, HanseiError
from hansei.client import Methods
from hansei.errors import TimedOut
from tests.sdk.stub_service import KEY, RECORDED, StubService

EVENTS = [{"event_type": "tool_call", "tool_name": "f", "content": "x"}]


def traces(number: int) -> list[dict[str, object]]:
    return [{"id": f"t{n}", "events": EVENTS, "outcome": "failure"} for n in range(1, number + 1)]


def test_a_value_is_what_the_service_answered(hansei: Hansei, service: StubService) -> None:
    found = hansei.search("refund", top_k=3, kinds=["strategy"], project_id=None)
    assert found["results"] == [RECORDED["hit"]]
    call = service.calls[0]
    assert (call.method, call.path) == ("POST", "/api/v1/search")
    # None is left out: the service's own default then holds.
    assert call.json == {"query_text": "refund", "top_k": 3, "kinds": ["strategy"]}
    assert call.headers["authorization"] == f"Bearer {KEY}"


def test_only_what_changes_something_carries_an_idempotency_key(
    hansei: Hansei, service: StubService
) -> None:
    hansei.memory("m1")
    hansei.search("x")
    hansei.query_reflections()
    assert all("idempotency-key" not in call.headers for call in service.calls)
    service.calls.clear()
    hansei.update("m1", importance=0.9)
    hansei.forget("m1", reason="wrong")
    hansei.generate_reflection(EVENTS, "failure")
    hansei.send_trace({"events": EVENTS})
    keys = [call.headers["idempotency-key"] for call in service.calls]
    assert len(set(keys)) == len(keys) == 4


def test_waiting_for_a_reflection_can_be_left_to_a_worker(
    hansei: Hansei, service: StubService
) -> None:
    assert hansei.generate_reflection(EVENTS, "failure", wait=False) == RECORDED["accepted"]
    assert service.calls[0].headers["prefer"] == "respond-async"
    assert hansei.generate_reflection(EVENTS, "failure").get("result") == "stored"
    assert "prefer" not in service.calls[1].headers


def test_changes_may_set_a_field_to_nothing(hansei: Hansei, service: StubService) -> None:
    hansei.update("m1", title=None)
    assert service.calls[0].json == {"title": None}


def test_an_id_cannot_leave_its_place_in_the_path(hansei: Hansei, service: StubService) -> None:
    hansei.memory("../keys?x=1")
    assert service.calls[0].path == "/api/v1/memories/..%2Fkeys%3Fx%3D1"


def test_ids_and_times_are_written_as_text(hansei: Hansei, service: StubService) -> None:
    key = UUID(int=7)
    hansei.send_trace({"events": EVENTS, "session_id": key})
    assert service.calls[0].json["session_id"] == str(key)


def test_lists_go_on_to_the_last_page(hansei: Hansei, service: StubService) -> None:
    list(hansei.send_traces(traces(5)))
    service.calls.clear()
    runs = list(hansei.runs(state=["queued"], limit=2))
    assert [run["id"] for run in runs] == []  # the stub works at each look
    runs = list(hansei.runs(state=["done"], kind="reflect", limit=2))
    assert [run["id"] for run in runs] == ["run-5", "run-4", "run-3", "run-2", "run-1"]
    assert len(service.calls) == 1 + 3


def test_a_list_is_fetched_as_far_as_it_is_used(hansei: Hansei, service: StubService) -> None:
    list(hansei.send_traces(traces(5)))
    list(hansei.unsettled(["run-1"]))
    service.calls.clear()
    runs = hansei.runs(state=["done"], limit=2)
    assert next(runs)["id"] == "run-5"
    runs.close()
    assert len(service.calls) == 1


def test_many_traces_are_sent_in_batches_and_answered_one_by_one(
    hansei: Hansei, service: StubService
) -> None:
    answers = list(hansei.send_traces(traces(250), reflect="always"))
    assert [answer.get("line") for answer in answers] == list(range(1, 251))
    assert answers[249].get("run_id") == "run-250"
    sent = [call.body.count(b"\n") + 1 for call in service.calls]
    assert sent == [100, 100, 50]
    assert service.calls[0].query == {"reflect": ["always"]}
    assert len({call.headers["idempotency-key"] for call in service.calls}) == 3


def test_what_there_is_no_room_for_now_is_sent_again(hansei: Hansei, service: StubService) -> None:
    service.no_room = {"t-2": "queue_full", "t-4": "unavailable", "t-5": "forbidden"}
    many = [trace | {"id": f"t-{n}"} for n, trace in enumerate(traces(6), start=1)]
    answers = list(hansei.send_traces(many))
    assert [answer.get("line") for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert [answer.get("trace_id") for answer in answers] == [
        *("trace-t-1", "trace-t-2", "trace-t-3", "trace-t-4", None, "trace-t-6"),
    ]
    assert answers[4].get("error", {})["code"] == "forbidden"
    assert [call.body.count(b"\n") + 1 for call in service.calls] == [6, 2]


def test_answers_come_while_later_traces_are_still_unread(
    hansei: Hansei, service: StubService
) -> None:
    read: list[int] = []

    def slow() -> object:
        for n, trace in enumerate(traces(300), start=1):
            read.append(n)
            yield trace

    answers = hansei.send_traces(slow())  # pyright: ignore[reportArgumentType]
    next(answers)
    answers.close()
    assert len(read) <= 101


def test_a_refused_trace_stops_nothing_and_keeps_its_place(
    hansei: Hansei, service: StubService, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    good = json.dumps(traces(1)[0])
    file.write_text(f'{good}\n\n{{"id": "empty"}}\n{{"broken\n{good}\n')
    answers = list(hansei.send_traces(file))
    assert [answer.get("line") for answer in answers] == [1, 3, 4, 5]
    assert ["error" in answer for answer in answers] == [False, True, True, False]
    assert answers[3].get("duplicate") is True


def test_a_line_over_the_limit_is_refused_here_and_takes_no_other_along(
    hansei: Hansei, service: StubService
) -> None:
    huge = {"id": "huge", "events": [{"event_type": "tool_call", "content": "x" * 17 * 2**20}]}
    answers = list(hansei.send_traces([traces(1)[0], huge, traces(2)[1]]))
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, "too_large", None]
    assert sum(len(call.body) for call in service.calls) < 2**20


def test_project_and_playbook_given_win_over_the_traces(
    hansei: Hansei, service: StubService, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(
        json.dumps(traces(1)[0] | {"project_id": "theirs", "kept": 1.5}) + "\nnot json\n"
    )
    list(hansei.send_traces(file, project_id="mine", playbook="book"))
    first, second = service.calls[0].body.split(b"\n")
    assert json.loads(first) | {"events": None} == {
        "id": "t1", "outcome": "failure", "kept": 1.5, "events": None,
        "project_id": "mine", "playbook": "book",
    }  # fmt: skip
    assert second == b"not json"  # the service says what is wrong with it


def test_wait_gives_the_settled_run(hansei: Hansei, service: StubService) -> None:
    list(hansei.send_traces(traces(1)))
    assert hansei.wait("run-1")["state"] == "done"
    assert service.paths().count("GET /api/v1/runs/run-1") == 2


def test_wait_has_an_end(hansei: Hansei, service: StubService) -> None:
    list(hansei.send_traces(traces(1)))
    with pytest.raises(TimedOut, match=r"still running after 0\.05 s"):
        hansei.wait("run-1", timeout=0.05)


def test_waiting_for_many_runs_reads_the_list_and_no_run_alone(
    hansei: Hansei, service: StubService
) -> None:
    service.pace = 200
    sent = list(hansei.send_traces(traces(450)))
    ids = {run_id for each in sent if (run_id := each.get("run_id"))}
    service.calls.clear()
    looks = [len(left) for left in hansei.unsettled(ids)]
    assert looks == [250, 50, 0]
    runs = {run["id"]: run for run in hansei.outcomes(ids)}
    assert set(runs) == ids
    assert all(run["state"] == "done" for run in runs.values())
    assert len(service.calls) <= 2 + 1 + 1 + 3
    assert {call.path for call in service.calls} == {"/api/v1/runs"}


def test_outcomes_far_down_the_list_are_read_one_by_one(
    hansei: Hansei, service: StubService
) -> None:
    list(hansei.send_traces(traces(900)))
    list(hansei.unsettled(["run-1"]))
    service.calls.clear()
    assert [run["id"] for run in hansei.outcomes(["run-1"])] == ["run-1"]
    assert service.paths()[-1] == "GET /api/v1/runs/run-1"
    assert len(service.calls) == 4


def test_waiting_for_nothing_asks_nothing(hansei: Hansei, service: StubService) -> None:
    assert list(hansei.unsettled([])) == []
    assert list(hansei.outcomes([])) == []
    assert service.calls == []


async def test_the_async_client_does_the_same(
    async_hansei: AsyncHansei, service: StubService
) -> None:
    sent = [each async for each in async_hansei.send_traces(traces(150), reflect="always")]
    assert len(sent) == 150
    assert (await async_hansei.wait("run-1"))["state"] == "done"
    looks = [left async for left in async_hansei.unsettled({"run-2", "run-150"})]
    assert looks[-1] == set()
    assert {run["id"] async for run in async_hansei.outcomes({"run-2"})} == {"run-2"}
    assert (await async_hansei.search("x"))["results"] == [RECORDED["hit"]]
    assert [memory async for memory in async_hansei.memories()] == [RECORDED["memory"]]
    with pytest.raises(HanseiError) as caught:
        await async_hansei.run("no-such-run")
    assert caught.value.status == 404


def test_methods_keep_their_names_and_words() -> None:
    client = Hansei("http://127.0.0.1:1", "k")
    assert client.search.__name__ == "search"
    assert "Hybrid search" in (client.search.__doc__ or "")
    assert list(inspect.signature(client.search).parameters) == ["query_text", "options"]
    assert "Hybrid search" in (Methods.search.__doc__ or "")
    client.close()


def test_steps_are_followed_to_the_last(hansei: Hansei, service: StubService) -> None:
    (sent,) = hansei.send_traces([{"id": "a", "events": [{}], "teaches": "Ask in pages"}])
    assert list(hansei.unsettled({sent["run_id"]}))[-1] == set()
    followed = list(hansei.steps(sent["run_id"]))
    assert [run["kind"] for run in followed] == ["reflect", "merge"]
    assert {run["id"] for run in hansei.outcomes([sent["run_id"]])} == {
        run["id"] for run in followed
    }
