"""The snippets of the how-to pages, run in this process against the service and a stub provider.

The files in `FILES` and the names in `BEFORE` are what a page expects its reader to have. Also run
elsewhere: docs/tutorial.md (tests/e2e) and docs/reflector.md (tests/library).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hansei
from hansei import Hansei
from hansei.cli import hooks
from hansei.cli.main import app
from hansei.recording import recorder
from tests.conftest import TestTenant
from tests.support.paths import ROOT
from tests.support.pdf import make_pdf
from tests.support.stub_provider import StubProvider

INTEGRATIONS = [f"docs/integrations/{path.name}" for path in (ROOT / "docs/integrations").iterdir()]
PAGES = {
    "sdk/README.md": 2,
    "docs/coding-agents.md": 0,
    "docs/collections.md": 0,
    "docs/costs.md": 0,
    "docs/grace.md": 0,
    "docs/mcp.md": 0,
    "docs/migrate.md": 0,
    "docs/playbooks.md": 0,
    "docs/webhooks.md": 0,
    **dict.fromkeys(sorted(INTEGRATIONS), 1),
}
"""Pages and the least number of traces that their snippets leave in the service."""
LONG_RUNNING = ("up", "top", "mcp", "migrate", "doctor", "serve", "worker", "agent")
"""Server commands, commands that do not end, and GRACE, which has tests of its own."""
FILES: dict[str, str | bytes] = {
    "results.json": json.dumps(
        [{"task_id": 1, "reward": 0.0, "traj": [{"role": "user", "content": "Refund W1."}]}]
    ),
    "traces.jsonl": '{"events": [{"event_type": "user_message", "content": "Refund W1."}]}\n',
    "export.jsonl": '{"messages": [{"role": "user", "content": "Refund W1."}]}\n',
    "session.jsonl": '{"type": "user", "message": {"role": "user", "content": "Run the tests."}}\n',
    "playbook.txt": "## OTHERS\n[oth-00001] helpful=3 harmful=1 :: Look the order up first.\n",
    "skillbook.json": json.dumps(
        {"skills": {"s-1": {"id": "s-1", "section": "orders", "content": "Ask for the order ID."}}}
    ),
    "mem0.json": json.dumps({"results": [{"id": "m1", "memory": "Answer in English."}]}),
    "AGENTS.md": "# Rules\n\n- Run the tests first.\n",
    "FILE": '[{"id": "m2", "memory": "Run the linter."}]',
    "docs/rules.md": "# Refunds\n\nA pending order cannot be refunded.\n",
    "refunds.md": "# Refunds\n\nA pending order cannot be refunded.\n",
    "refunds.pdf": make_pdf(["A pending order cannot be refunded."]),
}
GRAPH = """
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langgraph.graph import START, MessagesState, StateGraph

model = GenericFakeChatModel(messages=iter(["done"]))
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_edge(START, "model")
graph = graph.compile()
"""
BEFORE = {
    "sdk/README.md": "my_agent = lambda task, advice: 'I looked it up [ctx-00002].'",
    "docs/integrations/langchain.md": GRAPH,
    "docs/integrations/openai-agents.md": "import agents; agents.set_trace_processors([])",
}
WITH_GLOBALS = {
    f"docs/integrations/{name}.md" for name in ("openai-agents", "opentelemetry", "pydantic-ai")
}
"""Pages whose library has state of the process, such as a client that is never closed. Their
programs run in a process of their own.
"""
PLACEHOLDER = re.compile(r"\b(?:NAME|NEW|ID|DELIVERY|KEY|N|B|T|FOLDER|QUESTION)\b|…|\||--watch")
NAMES = {"hansei --help", "hansei reflect", "hansei playbook export", "hansei playbook restore"}
"""Names of commands in the text, without their arguments."""
Drain = Callable[..., Awaitable[int]]


@pytest.fixture
def reader(
    live: str, tenant: TestTenant, stub: StubProvider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestTenant]:
    """A reader of a page: a directory with the files, credentials in the environment, and playbooks
    with a bullet.
    """
    for name, content in FILES.items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    sessions = Path.home() / ".claude/projects" / re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd()))
    sessions.mkdir(parents=True)
    (sessions / "s-1.jsonl").write_text(str(FILES["session.jsonl"]), encoding="utf-8")
    page = (ROOT / "docs/migrate.md").read_text(encoding="utf-8")
    Path("playbook.json").write_text(snippets(page, "json")[0], encoding="utf-8")
    values = {
        "HANSEI_URL": live, "HANSEI_API_KEY": tenant.keys["admin"],
        "HANSEI_STATE_DIR": str(Path("state").resolve()),
        "HANSEI_SPOOL_DIR": str(Path("spool").resolve()),
        "OPENAI_BASE_URL": stub.openai_url, "OPENAI_API_KEY": "k",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(hooks, "start_sender", lambda: None)
    monkeypatch.setattr(recorder, "_default", None)
    monkeypatch.setattr(recorder, "_has_warned", False)
    with Hansei() as client:
        for name in ("coding", "support"):
            bullet = {"type": "ADD", "section": "OTHERS", "content": "Look the order up first."}
            client.playbooks.apply_deltas(name, [bullet])
    yield tenant
    if recorder._default is not None:
        recorder._default.close(0)


def snippets(page: str, *kinds: str) -> list[str]:
    found = re.findall(rf"^ *```(?:{'|'.join(kinds)})\n(.*?)^ *```", page, re.S | re.M)
    return [textwrap.dedent(each) for each in found]


def shell_commands(page: str) -> list[str]:
    """The commands of the shell blocks, and those in the text and in tables."""
    found: list[str] = []
    for block in snippets(page, "sh", "bash", "console"):
        lines = block.replace("\\\n", " ").splitlines()
        found += [line.removeprefix("$ ").strip() for line in lines]
    text = re.sub(r"^ *```.*?^ *```", "", page, flags=re.S | re.M)
    named = [each for each in re.findall(r"`(hansei [^`]+)`", text) if each not in NAMES]
    found += [each for each in named if not PLACEHOLDER.search(each)]
    return list(dict.fromkeys(found))


def run_command(command: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, *arguments = shlex.split(os.path.expandvars(command)) or [""]
    if name == "export":
        key, _, value = arguments[0].partition("=")
        if "…" in value:
            return  # a value of the reader, which the fixture sets
        monkeypatch.setenv(key, value.replace("http://127.0.0.1:8321", url))
    elif name == "curl":
        done = subprocess.run(["curl", "-sf", *arguments], capture_output=True, timeout=20)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    elif name == "hansei" and arguments[0] not in LONG_RUNNING:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (command, result.output)


def run_programs(path: str, programs: list[str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    programs = [BEFORE.get(path, ""), *programs]
    if path in WITH_GLOBALS:
        command = [sys.executable, "-c", "\n".join(programs)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return
    for program in programs:
        exec(compile(program, path, "exec"), names)
    assert hansei.flush(10) == 0


@pytest.mark.parametrize("path", PAGES)
async def test_page(
    path: str,
    reader: TestTenant,
    live: str,
    drain: Drain,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (ROOT / path).read_text(encoding="utf-8")
    programs = snippets(page, "python", "py")

    def run_page() -> None:
        for command in (each for each in shell_commands(page) if each.startswith("export ")):
            run_command(command, live, monkeypatch)
        run_programs(path, programs)
        for command in (each for each in shell_commands(page) if not each.startswith("export ")):
            run_command(command, live, monkeypatch)

    work = asyncio.create_task(asyncio.to_thread(run_page))
    while not work.done():
        await drain(reader.id)
        await asyncio.wait([work], timeout=0.05)
    await work
    with Hansei() as client:
        assert len(list(await asyncio.to_thread(lambda: list(client.traces.list())))) >= PAGES[path]


def test_how_to_pages_are_run() -> None:
    """A new page of the section How-to in mkdocs.yml is run too, or named here."""
    elsewhere = {"events.md", "console.md", "evaluating.md", "reflector.md"}
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    how_to = nav.partition("- How-to:")[2].partition("- Operate:")[0]
    pages = set(re.findall(r": (\S+\.md)", how_to)) - elsewhere
    assert len(pages) > 10
    assert {f"docs/{page}" for page in pages} <= set(PAGES)
