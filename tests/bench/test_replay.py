"""bench/replay: what it measures, and one run of the command against a real service whose model is
the stub.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.paired import Task, Unfit, by_command, difference, read_tasks, score, split
from bench.replay import Answered, Replay, Side, main, without_citations
from hansei import Hansei
from memory_api.bootstrap import open_runtime
from memory_api.core.settings import Settings
from memory_api.main import create_app
from memory_api.worker import process_ticket
from tests.conftest import Database, TestTenant
from tests.support.cases import each_case
from tests.support.paths import ROOT
from tests.support.stub_provider import Answer, Call, StubProvider, answer
from tests.support.tickets import waiting_tickets

TASKS = ROOT / "examples" / "replay_tasks.jsonl"
RULE = "Shipping to Basel costs 4.90, and nothing to Oslo."
PLAYBOOK = {"bullets": [{"id": "fig-00001", "section": "FIGURES", "content": RULE}]}
LEARNED = "Parcels above 30 kg go with Planzer."


def model(call: Call) -> Answer:
    """Knows what the shop charges only from its playbook; as a reflector it teaches one thing."""
    if call.schema and "root_cause" in call.schema["properties"]:
        lesson = {"reflection": "The carrier was guessed.", "strategy": LEARNED, "importance": 0.8}
        return answer(lesson)
    if call.schema:
        add = {"type": "ADD", "lessons": [1], "content": LEARNED, "reasoning": "It is new."}
        return answer({"reasoning": "One is new.", "operations": [add]})
    knows, asked = RULE in call.text, call.text
    sums = {"lamps": "That makes 64.60", "chairs": "94.90", "desk": "210.00"}
    for word, right in sums.items():
        if word in asked:
            return answer(
                f"{right} [fig-00001]" if knows else "I cannot know the cost of shipping."
            )
    return answer("yes, gladly" if "twelve days" in asked else "It depends.")


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        running.behave = model
        yield running


@pytest.fixture
def url(
    request: pytest.FixtureRequest, stub: StubProvider, database: Database, tenant: TestTenant
) -> Iterator[str]:
    """A service on a real socket with the stub as its model, and a worker for this tenant."""
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        llm_provider=getattr(request, "param", "openai"),
        openai_api_key="test",  # type: ignore[arg-type]
        openai_base_url=stub.openai_url,
    )
    app = create_app(settings, database.url("hansei_app"))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None))
    stop = threading.Event()

    async def learn() -> None:
        async with open_runtime(settings, database.url("hansei_app")) as runtime:
            while not stop.is_set():
                for ticket in await waiting_tickets(runtime, tenant.id):
                    await process_ticket(runtime, ticket)
                await asyncio.sleep(0.05)

    threads = [
        threading.Thread(target=server.run, daemon=True),
        threading.Thread(target=lambda: asyncio.run(learn()), daemon=True),
    ]
    for thread in threads:
        thread.start()
    while not server.started:
        assert threads[0].is_alive(), "the service did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    stop.set()
    for thread in threads:
        thread.join(20)


def test_one_command_measures_a_playbook_on_the_example_tasks(
    url: str, tenant: TestTenant, tmp_path: Path
) -> None:
    file = tmp_path / "playbook.json"
    file.write_text(json.dumps(PLAYBOOK))
    command = typer.Typer()
    command.command()(main)
    said = ["--tasks", str(TASKS), "--playbook-file", str(file), "--repeats", "2", "--url", url]
    done = CliRunner().invoke(command, [*said, "--api-key", tenant.keys["admin"]])
    assert done.exit_code == 0, done.output
    lines = [[cell.strip() for cell in line.split("|")] for line in done.stderr.splitlines()]
    tables = {line[0].split(":")[0]: line for line in lines}
    assert [line for line in lines if line[0] == "arms: with"]
    # Basel (.5 and 1: one of the two answers is right with more words), Oslo and no other.
    assert tables["pairs"][:4] == ["pairs: 7", "2", "5", "0"]
    assert tables["pairs"][4] == "+0.250"


def test_task_that_was_learned_from_is_not_measured(
    url: str, tenant: TestTenant, stub: StubProvider
) -> None:
    """The lesson of the tasks on one side is in the playbook when the others are asked."""
    tasks = read_tasks(TASKS)
    learned = [task for task in tasks if task.key == "carrier-heavy"]
    measured = [task for task in tasks if task.key.startswith("shipping")]
    with Hansei(url, tenant.keys["admin"]) as client:
        replay = Replay(client, "shop")
        done = replay.learn(learned)
        assert (done.with_outcome, done.changes, done.failed) == (1, 1, [])
        assert done.tokens > 0
        stub.calls.clear()
        with_, without = replay.measure(measured, 1)
        assert sum(LEARNED in call.text for call in stub.calls) == len(measured)
        assert all(one.shown == 1 for one in with_.answers)
        assert all(one.shown == 0 for one in without.answers)
        assert with_.tokens > without.tokens > 0
        assert replay.count_known_tasks(measured) == 0
        assert replay.count_known_tasks(learned) == 1


@pytest.mark.parametrize("url", ["none"], indirect=True)
def test_without_a_model_there_is_nothing_to_measure(url: str, tenant: TestTenant) -> None:
    with (
        Hansei(url, tenant.keys["admin"]) as client,
        pytest.raises(Unfit, match="HANSEI_LLM_PROVIDER"),
    ):
        Replay(client, "shop").measure([Task("q", "k", 1)], 1)


def test_tasks_of_one_key_stay_together() -> None:
    tasks = read_tasks(TASKS)
    assert len({task.key for task in tasks}) == 7
    for seed in range(20):
        learned, measured = split(tasks, 0.5, seed)
        assert len(learned) + len(measured) == len(tasks)
        assert not {one.key for one in learned} & {one.key for one in measured}
    assert len({tuple(t.key for t in split(tasks, 0.5, seed)[0]) for seed in range(20)}) > 1
    assert split(tasks, 0.0, 1) == ([], tasks)


@each_case(
    ("right", "text", "expected"),
    [(42, "42", 1.0), (42, "It is 42.", 0.5), ("Bern", "Basel", 0.0), (None, "x", None)],
)
def test_answers_are_compared_like_in_service(right: Any, text: str, expected: Any) -> None:
    assert score(Task("q", "k", right), text) == expected


def test_pattern_finds_the_answer_in_a_longer_text() -> None:
    text = "First I thought: answer: 41. Then: answer: 42"
    task = Task("q", "k", 42)
    assert score(task, text, re.compile(r"answer: (\d+)")) == 1.0
    assert score(task, text, re.compile(r"\d+")) == 1.0


def test_citations_are_no_part_of_an_answer() -> None:
    """Else only the side with a playbook would be marked down for "more words"."""
    shown = ["fig-00001", "str-00002"]
    assert without_citations("64.60 [fig-00001].", shown) == "64.60."
    assert without_citations("a [fig-00001, str-00002] b[str-00002]", shown) == "a b"
    assert without_citations("x[0] [oth-00001]", shown) == "x[0] [oth-00001]"
    assert without_citations("x [fig-00001]", []) == "x [fig-00001]"


def test_repeat_counts_only_when_both_sides_were_scored() -> None:
    task = Task("q", "k", 1)

    def side(*scores: float | None) -> Side:
        return Side([Answered(task, "", one, "", 0, 0, None) for one in scores])

    with_, without = side(1.0, None, 0.0), side(0.0, 1.0, None)
    assert (with_.scores(without), without.scores(with_)) == ({"k": 1.0}, {"k": 0.0})


def test_command_scores_answers() -> None:
    look = 'grep -q \'"answer": "yes\''
    assert by_command(look, Task("q", "k"), "yes") == 1.0
    assert by_command(look, Task("q", "k"), "no") == 0.0


@pytest.mark.parametrize("line", ["{", '{"task_key": "a"}', '{"query": "q", "check": "("}', ""])
def test_bad_file_is_refused_by_line(line: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(f"{line}\n")
    with pytest.raises(Unfit, match=r"line 1|no task"):
        read_tasks(file)


def test_interval_of_agresti_and_min() -> None:
    """Twenty pairs, 8 better and 2 worse: (8 - 2) / 22, and the width by their formula."""
    keys = [str(n) for n in range(20)]
    with_ = {key: float(n < 13) for n, key in enumerate(keys)}
    without = {key: float(n < 5 or n in (13, 14)) for n, key in enumerate(keys)}
    found = difference(with_, without)
    assert (found.better, found.same, found.worse) == (8, 10, 2)
    reach = 1.96 * ((8.5 + 2.5) - (8.5 - 2.5) ** 2 / 22) ** 0.5 / 22
    assert found.low == pytest.approx(6 / 22 - reach)
    assert found.high - 6 / 22 == pytest.approx(6 / 22 - found.low)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_interval_is_symmetric_in_its_sides(
    pairs: list[tuple[float, float]],
) -> None:
    one = {str(n): a for n, (a, _) in enumerate(pairs)}
    other = {str(n): b for n, (_, b) in enumerate(pairs)}
    found, turned = difference(one, other), difference(other, one)
    assert -1 <= found.low < found.high <= 1
    assert found.low == pytest.approx(-turned.high)
    assert found.better == turned.worse
