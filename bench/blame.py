"""Whether a model that answers Hansei's prompts blames the step that the author of a run blamed.

    python -m bench blame [--record URL] [--write FOLDER]

The labeled runs of several agents in `tests/recordings/teams` and `tests/recordings/blind_teams` go
through the API and the steps evaluate and reflect, each in a project of its own, without `blamed`
and `blamed_reason`. The model's answers are those that a reader wrote to these prompts: the
`recordings.jsonl` of each folder. A row counts the runs whose label is the first, or among the
first three or five, of the `source_event_ids` that the service returns.

A prompt that differs from the recorded one gets the answer that is recorded for the run. The bench
counts such prompts and prints the lines that differ. `--record URL` asks an OpenAI-compatible
endpoint (with its `/v1`) for new answers to them instead, and stores each at once; after an
interruption, start it again. `--write FOLDER` writes each prompt that differs, with its schema, to
a file, for a reader.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
import uvloop

from bench.harness import ROOT, MeasuredServer, Report, api, measured_server, new_tenant, send
from bench.recorded_model import (
    PATIENCE_SECONDS,
    RecordedCall,
    RecordedModel,
    call_name,
    user_prompt,
    write_calls,
)
from bench.recordings import find_run
from memory_api.bootstrap import open_runtime
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.llm.port import LLM, LLMRequest
from memory_api.llm.registry import open_llm
from memory_api.run_queue.port import Ticket
from memory_api.runs.chain import REFLECT
from memory_api.runs.queries import get_run
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.support.tickets import waiting_tickets

RECORDINGS = ROOT / "tests" / "recordings"
SETS = ("teams", "blind_teams")
LABELS = ("blamed", "blamed_reason")
"""What an author wrote about a run. The service never gets it."""
METHOD = (
    "The runs were written for Hansei, and readers answered the prompts (tests/recordings/README.md"
    "). The prompts contain the right answer of the task. Each run has one clear error; runs of "
    "real teams are harder."
)


def main(
    record: Annotated[
        str | None, typer.Option(help="OpenAI-compatible endpoint for answers not recorded.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Folder for the prompts that differ from the recorded ones.")
    ] = None,
) -> None:
    configure_logging("console", "error")
    asked = open_llm("openai", model="recorded", base_url=record) if record else None
    models = {name: RecordedReader(RECORDINGS / name, asked, write) for name in SETS}
    with measured_server() as server:
        named = uvloop.run(reflect_on_sets(server, models))
    for model in models.values() if asked else ():
        write_calls(model.file, sorted(model.used, key=lambda call: call.name))
    to_report(models, named).finish(write=asked is None)


# The model


class RecordedReader(RecordedModel):
    """Answers each prompt with the answer that is recorded for the run. With another model, asks it
    for the answers to prompts that differ from the recorded ones, and appends them.
    """

    def __init__(self, folder: Path, asked: LLM | None = None, write: Path | None = None) -> None:
        super().__init__(folder / "recordings.jsonl", asked)
        self.write = write / folder.name if write else None
        self.changed: list[str] = []

    def to_call(self, request: LLMRequest) -> RecordedCall:
        system = "\n\n".join(m.content for m in request.messages if m.role == "system")
        digest = hashlib.sha256(system.encode()).hexdigest()[:16]
        return RecordedCall(
            request.purpose, user_prompt(request), name=call_name.get(), instructions=digest
        )

    async def find_answer(self, mine: RecordedCall, request: LLMRequest) -> RecordedCall:
        known = self.by_name.get(mine.name)
        self.changed.append(mine.name)
        if self.write:
            write_prompt(self.write, mine.name, request)
        else:
            print_changes(known, mine)
        if self.asked is None and known is not None:
            return replace(mine, answer=known.answer)
        return await self.ask(mine, request, self.asked)


def write_prompt(folder: Path, name: str, request: LLMRequest) -> None:
    """The messages and the schema of a request as one file."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [message.content for message in request.messages]
    if request.schema:
        parts.append(f"Schema of the answer: {json.dumps(request.schema.schema)}")
    (folder / f"{name}.txt").write_text("\n\n".join(parts), encoding="utf8")


def print_changes(known: RecordedCall | None, now: RecordedCall) -> None:
    """The lines of the prompt that differ from the recorded one."""
    before = known.prompt.splitlines() if known else []
    if known and known.instructions != now.instructions:
        print(f"{now.name}: other instructions")
    for line in difflib.unified_diff(before, now.prompt.splitlines(), n=0, lineterm=""):
        if line[:1] in "+-" and line[:3] not in ("+++", "---"):
            print(f"{now.name}: {line}")


# The runs


def unlabeled_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs of a folder as the API takes them, without the labels."""
    return [
        {key: value for key, value in json.loads(path.read_bytes()).items() if key not in LABELS}
        | {"external_id": path.stem, "project_id": path.stem}
        for path in sorted(folder.glob("*.json"))
    ]


async def reflect_on_sets(
    server: MeasuredServer, models: Mapping[str, RecordedReader]
) -> dict[str, dict[str, list[str]]]:
    """Set → run → the events that the service names, in its order."""
    settings = Settings(
        _env_file=None,  # type: ignore[call-arg]
        llm_provider="none",
        llm_max_tokens=8_192,
        run_timeout=PATIENCE_SECONDS,
    )
    keys = {name: await new_tenant(server, _slug(name)) for name in models}
    named: dict[str, dict[str, list[str]]] = {}
    async with open_runtime(settings, server.url("hansei_app")) as runtime:
        with api(server) as port:
            for name, model in models.items():
                runs = unlabeled_runs(RECORDINGS / name)
                body = "".join(f"{json.dumps(run)}\n" for run in runs).encode()
                await asyncio.to_thread(send, port, keys[name], body, "always")
                opened = replace(runtime, llm=model)
                named[name] = await reflect_on_all(opened, to_tenant_id(_slug(name)))
    return named


def _slug(name: str) -> str:
    return name.replace("_", "-")


async def reflect_on_all(runtime: Runtime, tenant_id: UUID) -> dict[str, list[str]]:
    """Execute the runs that are due, reflections at the same time. Run name → source events."""
    named: dict[str, list[str]] = {}

    async def execute(ticket: Ticket) -> None:
        kind, name = await find_run(runtime, ticket)
        call_name.set(name)
        await process_ticket(runtime, ticket)
        if kind == REFLECT:
            async with runtime.sessions.for_tenant(tenant_id) as session:
                run = await get_run(session, ticket.run_id)
            if run is None or not run.result or run.result["engine"] != "llm":
                raise RuntimeError(f"The reflection on {name} failed.")
            named[name] = run.result["source_event_ids"]

    while tickets := await waiting_tickets(runtime, tenant_id):
        await asyncio.gather(*map(execute, tickets))
    return named


# Scores


def rank_labels(folder: Path, named: Mapping[str, Sequence[str]]) -> dict[str, int | None]:
    """Run → the rank of its label among the named events, from 1; None if it is not there."""
    ranks: dict[str, int | None] = {}
    for path in sorted(folder.glob("*.json")):
        blamed, events = json.loads(path.read_bytes())["blamed"], list(named[path.stem])
        ranks[path.stem] = events.index(blamed) + 1 if blamed in events else None
    return ranks


def missed(ranks: Mapping[str, int | None], most: int) -> list[str]:
    """The runs whose label is not among the first `most` named events."""
    return [name for name, rank in ranks.items() if rank is None or rank > most]


def to_report(
    models: Mapping[str, RecordedReader], named: Mapping[str, Mapping[str, Sequence[str]]]
) -> Report:
    changed = [f"{name}/{run}" for name, model in models.items() for run in model.changed]
    prompts = sum(len(model.used) for model in models.values())
    report = Report(
        "blame",
        f"{METHOD}\n\nPrompts: {prompts}, of which {len(changed)} differ from the recorded ones"
        f"{': ' if changed else ''}{', '.join(changed)}.",
    )
    report.table(
        *("blame", "Is the blamed step among the named events?", "set", "runs"),
        *("first", "first three", "first five", "not first", "not among the first three"),
    )
    for name in models:
        ranks = rank_labels(RECORDINGS / name, named[name])
        shares = (_share(ranks, most) for most in (1, 3, 5))
        misses = (" ".join(missed(ranks, most)) or "none" for most in (1, 3))
        report.row("blame", name, len(ranks), *shares, *misses)
    return report


def _share(ranks: Mapping[str, int | None], most: int) -> str:
    hits = len(ranks) - len(missed(ranks, most))
    return f"{hits} ({hits / len(ranks):.2f})"


if __name__ == "__main__":
    typer.run(main)
