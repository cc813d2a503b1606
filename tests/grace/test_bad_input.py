"""Bad input of the agent has the same code and the same sentence over HTTP, in the client, on the
command line and in the console.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hansei import Hansei, HanseiError
from hansei.cli.main import app as cli
from memory_api.core.errors import ConfigurationError
from memory_api.grace.config import GraceConfig, read_config
from tests.console.conftest import ConsoleClient, console
from tests.grace.conftest import URL, Agent
from tests.grace.test_agent_runs import KNOWN, UNKNOWN, step
from tests.grace.test_confidence import FILE

__all__ = ["console"]

SEARCH, ANSWER = step(1, "rag_search"), step(2, "reasoning", 1)
TOOLS = "ask_user, rag_search, reasoning"
PLANS: Mapping[str, tuple[Any, str]] = {
    "cycle": (
        [step(1, "rag_search", 2), ANSWER],
        "Step 1 depends on step 2, which is not earlier.",
    ),
    "tool": ([step(1, "dance")], f"Step 1: unknown action 'dance'. There are: {TOOLS}."),
    "25 steps": (
        [step(n, "reasoning") for n in range(1, 26)],
        "plan.steps: Must have at most 20 item(s).",
    ),
    "IDs": ([SEARCH, step(1, "reasoning")], "Two steps have the same step_id."),
    "prose": ("First search, then answer.", "plan.steps: Must be a JSON array."),
}


@dataclass
class Doors:
    """The four ways to the agent. Each returns the status, 2 for the command line, and text."""

    agent: Agent
    live: str
    key: str
    folder: Path
    browser: ConsoleClient

    async def http(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        answer = await self.agent.api.post(
            path, json=body, headers={"Authorization": f"Bearer {self.key}"}
        )
        return answer.status_code, answer.json()["detail"]

    async def client(self, method: str, *given: Any, **named: Any) -> tuple[int, str]:
        def call() -> tuple[int, str]:
            with Hansei(self.live, self.key) as client, pytest.raises(HanseiError) as caught:
                attrgetter(method)(client)(*given, **named)
            return getattr(caught.value, "status", 0), str(caught.value)

        return await asyncio.to_thread(call)

    async def command(self, *words: str) -> tuple[int, str]:
        environment = {"HANSEI_URL": self.live, "HANSEI_API_KEY": self.key, "COLUMNS": "400"}
        run = await asyncio.to_thread(
            lambda: CliRunner().invoke(cli, ["agent", *words], env=environment)
        )
        return run.exit_code, " ".join(run.output.split())

    async def console(self, path: str, **fields: str) -> tuple[int, str]:
        page = await self.browser.send(f"/console/agent-runs{path}", **fields)
        return page.status_code, " ".join(html.unescape(re.sub("<[^>]+>", " ", page.text)).split())


@pytest.fixture
async def doors(
    agent: Agent,
    live: str,
    tmp_path: Path,
    console: Callable[..., Awaitable[ConsoleClient]],
) -> Callable[..., Awaitable[Doors]]:
    async def open_with(key: str) -> Doors:
        return Doors(agent, live, key, tmp_path, await console(key))

    return open_with


async def test_plan_of_a_caller(agent: Agent, doors: Any) -> None:
    opened: Doors = await doors(agent.tenant.keys["admin"])
    for name, (steps, sentence) in PLANS.items():
        plan = {"steps": steps}
        file = opened.folder / "plan.json"
        file.write_text(json.dumps(plan), "utf8")
        status, text = await opened.http(URL, {"query": KNOWN, "plan": plan})
        assert (status, text) == (422, sentence), name
        status, text = await opened.client("agents.runs.create", KNOWN, plan=plan)
        assert status == 422, name
        assert sentence in text, name
        code, text = await opened.command("run", KNOWN, "--plan", str(file))
        assert code != 0, name
        assert sentence in text, name


async def test_question_of_spaces(agent: Agent, doors: Any) -> None:
    opened: Doors = await doors(agent.tenant.keys["admin"])
    status, sentence = await opened.http(URL, {"query": " \n "})
    assert status == 422
    assert sentence == "query: Must not be empty."
    for status, text in (
        await opened.client("agents.runs.create", " \n "),
        await opened.command("run", " \n "),
    ):
        assert status in (422, 1, 2)
        assert " ".join(sentence.split()) in text
    status, text = await opened.console("", query=" \n ")
    assert (status, "Question: Must not be empty." in text) == (422, True), text


async def test_question_that_is_not_open(agent: Agent, doors: Any, make_tenant: Any) -> None:
    """Answered twice, after its end, and by another tenant."""
    opened: Doors = await doors(agent.tenant.keys["admin"])
    other: Doors = await doors((await make_tenant()).keys["admin"])
    answered = await agent.ask(UNKNOWN, interactive=False)
    assert (await agent.answer(answered, "proceed")).status_code == 202
    ended = await agent.ask(UNKNOWN, interactive=False)
    await agent.api.post(f"{URL}/{ended['id']}/cancel")
    for run, by, sentence, status in (
        (answered, opened, "This intervention is answered.", 409),
        (ended, opened, "This intervention is cancelled.", 409),
        (answered, other, "Agent run not found.", 404),
    ):
        question = run["intervention"]["id"]
        path = f"{URL}/{run['id']}/interventions/{question}/answer"
        assert await by.http(path, {"action": "proceed"}) == (status, sentence)
        found, text = await by.client(
            "agents.runs.interventions.answer", run["id"], question, "proceed"
        )
        assert found == status
        assert sentence.rstrip(".") in text
        found, text = await by.console(f"/{run['id']}/answer/{question}", action="proceed")
        assert found == status
        assert sentence in text
        code, text = await by.command("answer", run["id"], "proceed")
        assert code != 0, text


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "soon"])
def test_timeout_that_is_no_time_stops_the_start(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"GRACE setting intervention\.timeout_seconds: "):
        read_config(FILE, {"GRACE_INTERVENTION_TIMEOUT_SECONDS": value})
    assert GraceConfig().intervention.timeout_seconds == 300
