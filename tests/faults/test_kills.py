"""kill -9 of worker, API and PostgreSQL at a random point of each step of learning, with the rules
engine and with a slow model.

Two rounds by rules and one with a model by default; `make test-faults` makes fifty of either.
HANSEI_SEED chooses other points.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import time
from collections.abc import Iterator

import httpx2
import pytest

from tests.faults.conftest import measure_census
from tests.support.fault_workload import TASKS, Census, Sender, assert_same_census
from tests.support.installation import Installation
from tests.support.stub_provider import Answer, Call, StubProvider, by_schema

ROUNDS = int(os.environ.get("HANSEI_FAULTS", "0"))
SEED = os.environ.get("HANSEI_SEED", "")
POINTS = (
    ("worker", "reflect"),
    ("postgres", "apply"),
    ("api", "send"),
    ("worker", "curate"),
    ("postgres", "send"),
    ("api", "reflect"),
    ("worker", "apply"),
    ("postgres", "reflect"),
    ("api", "evaluate"),
    ("worker", "evaluate"),
    ("postgres", "curate"),
    ("api", "apply"),
    ("worker", "send"),
    ("postgres", "evaluate"),
    ("api", "curate"),
)
LATER = 0.25
"""Seconds at most between the start of a step and the kill."""
MODEL_SECONDS = 0.15
"""How long a model call takes, so that most kills interrupt a call."""


@pytest.fixture(scope="module")
def census_with_model(installation: Installation, model: StubProvider) -> Iterator[Census]:
    """The result of the work with a model when nothing breaks."""
    model.clear()
    model.behave, model.delay = teach, MODEL_SECONDS
    yield measure_census(installation)
    model.clear()


def teach(call: Call) -> Answer:
    """A rule for the tool of a run, and a bullet for each lesson."""
    answer = json.loads(by_schema(call).text)
    if "rules" in answer:
        tool, _, argument = next(TASKS[goal] for goal in TASKS if goal in call.text)
        do = f"Choose {argument} with care"
        answer["rules"] = [{"when": f"Before calling {tool}", "do": do, "remedy": "shown"}]
        answer["task_hint"] = None
    elif "operations" in answer:
        lessons = re.findall(r"^(\d+)\. \(\w+\) (.+ with care\.)", call.text, re.MULTILINE)
        answer["operations"] = [
            {"type": "ADD", "lessons": [int(n)], "section": "strategies", "content": text}
            for n, text in lessons
        ]
    return Answer(json.dumps(answer))


@pytest.mark.parametrize("number", range(ROUNDS or 2))
def test_rules_lose_nothing_and_count_nothing_twice(
    installation: Installation, expected_census: Census, sender: Sender, number: int
) -> None:
    work_with_one_kill(installation, sender, number)
    assert_same_census(installation, sender, expected_census)
    installation.await_ready()


@pytest.mark.with_model
@pytest.mark.parametrize("number", range(3, 3 + (ROUNDS or 1)))
def test_model_loses_nothing_and_counts_nothing_twice(
    installation: Installation, census_with_model: Census, sender: Sender, number: int
) -> None:
    work_with_one_kill(installation, sender, number)
    assert_same_census(installation, sender, census_with_model)
    installation.await_ready()


def test_what_a_killed_process_handed_out_is_known(
    installation: Installation, sender: Sender
) -> None:
    """A verdict on a search or render is accepted, whatever is killed after the answer."""
    sender.prepare()
    desk = f"{installation.url}/api/v1/playbooks/desk"
    headers = {"Authorization": f"Bearer {sender.tenant.key}"}
    for kind, victim in itertools.product(("search", "render"), ("api", "postgres")):
        answer = httpx2.post(f"{desk}/{kind}", json={"query_text": "refund"}, headers=headers)
        kill(installation, victim)
        assert answer.status_code == 200, answer.text
        installation.await_ready()
        verdict = {"tag": "helpful", "retrieval_id": answer.json()["retrieval_id"]}
        url = f"{desk}/bullets/{sender.advice}/verdicts"
        recorded = httpx2.post(url, json=verdict, headers=headers)
        assert recorded.is_success, recorded.text


def kill(installation: Installation, victim: str) -> None:
    """Kill PostgreSQL or a process of the service, and start it again."""
    if victim == "postgres":
        installation.kill_postgres()
        installation.pg.start()
    else:
        installation.kill(victim)
        installation.run(victim)


def work_with_one_kill(installation: Installation, sender: Sender, number: int) -> None:
    """Send the traces, and kill the victim of this round at a random point of its step."""
    victim, step = POINTS[number % len(POINTS)]
    point = random.Random(f"{SEED}{number}").uniform(0, LATER)
    with sender.at_work():
        if step != "send":
            installation.await_step(sender.tenant, step)
        time.sleep(point)
        kill(installation, victim)
