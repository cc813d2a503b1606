"""The learning chain with a strong model, replayed from recordings.

    python -m bench curate [--record FOLDER] [--save]

28 runs of 7 tasks (5 airline tasks and 2 questions, 4 attempts each) go through evaluate →
reflect → curate → apply in two waves, then the playbook is consolidated. The answers of the model
are those that readers wrote; `tests/recordings/curation` contains them. Prints bullets, model calls
and tokens for each trace, and the pairs of bullets that a labeled list calls duplicates. It counts
the prompts that differ from the recorded ones, because their answers may not fit any more.

`--record FOLDER` asks for missing answers: each prompt is FOLDER/ask/NAME.txt, and its answer is
read from FOLDER/answer/NAME.txt as soon as that file exists. `--save` stores prompts and answers as
recordings. Needs ../shared/data/traces.jsonl.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from apps.memory_api.auth.identity import to_tenant_id
from apps.memory_api.bootstrap import open_runtime
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.settings import Settings
from apps.memory_api.core.telemetry import configure_logging
from apps.memory_api.curation.cleanup import clean_up_playbook
from apps.memory_api.curation.queries import list_active_bullets
from apps.memory_api.llm.port import LLMReply, LLMRequest, TokenUsage
from apps.memory_api.playbooks.queries import get_playbook
from apps.memory_api.playbooks.ref import PlaybookRef
from apps.memory_api.run_queue.port import Ticket
from apps.memory_api.runs.chain import EVALUATE, REFLECT
from apps.memory_api.runs.queries import get_run
from apps.memory_api.runtime import Runtime
from apps.memory_api.text.terms import estimate_tokens
from apps.memory_api.traces.queries import get_trace
from apps.memory_api.worker import process_ticket
from bench.corpus import SHARED
from bench.ingest import new_tenant, send
from bench.recordings import (
    RecordedDecisions,
    Recording,
    read_recordings,
    to_current_numbers,
)
from bench.report import Report
from bench.server import ROOT, MeasuredServer, api, measured_server
from tests.support.tickets import waiting_tickets

RECORDINGS = ROOT / "tests" / "recordings" / "curation"
PLACE = PlaybookRef("default", "main")
SOURCES = (("tau-bench-airline-gpt-4o", 5), ("reflexion-hotpotqa-react", 2))
"""Source and number of its tasks."""
ATTEMPTS = 4
ATTEMPTS_PER_WAVE = 2
_DELIMITER = re.compile(r"(</?[a-z-]+-)[0-9a-f]{16}>")


def main(
    record: Annotated[
        Path | None, typer.Option(help="Folder for the prompts without a recorded answer.")
    ] = None,
    save: Annotated[bool, typer.Option(help="Store prompts and answers as recordings.")] = False,
) -> None:
    configure_logging("console", "error")
    if not (SHARED / "traces.jsonl").exists():
        raise typer.BadParameter(f"{SHARED / 'traces.jsonl'} does not exist.")
    model = RecordedModel(read_recordings(RECORDINGS), record)
    with measured_server() as server:
        bullets = uvloop.run(learn(server, model))
    report = to_report(model, bullets)
    report.finish(write=record is None)
    if save:
        write_recordings(RECORDINGS, model, bullets)


def waves() -> list[list[dict[str, Any]]]:
    """The traces of the first tasks of each source with different outcomes, in waves of
    attempts.
    """
    lines = (SHARED / "traces.jsonl").read_text(encoding="utf8").splitlines()
    attempts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for trace in map(json.loads, lines):
        attempts[trace["source"], trace["group"]].append(trace)
    chosen: list[list[dict[str, Any]]] = []
    for source, count in SOURCES:
        tasks = [a[:ATTEMPTS] for (s, _), a in attempts.items() if s == source]
        chosen += [task for task in tasks if len({a["outcome"] for a in task}) > 1][:count]
    return [
        [trace for task in chosen for trace in task[start : start + ATTEMPTS_PER_WAVE]]
        for start in range(0, ATTEMPTS, ATTEMPTS_PER_WAVE)
    ]


# The model


@dataclass(frozen=True)
class _Reader:
    """The place of a run in its wave. The runs of a wave read the database before the first one
    writes, and write in their order, so that each replay makes the same prompts.
    """

    wave: Wave
    number: int
    name: str


_reader: ContextVar[_Reader | None] = ContextVar("_reader", default=None)


class Wave:
    """Runs that are executed together."""

    def __init__(self, count: int) -> None:
        self.finished = [asyncio.Event() for _ in range(count)]
        self._arrived: set[int] = set()
        self._all_arrived = asyncio.Event()

    def arrive(self, number: int) -> None:
        """The run needs nothing from the database any more, or is finished."""
        self._arrived.add(number)
        if len(self._arrived) == len(self.finished):
            self._all_arrived.set()

    async def wait_for_turn(self, number: int) -> None:
        """Wait until all runs have arrived and those before this one are finished."""
        await self._all_arrived.wait()
        for event in self.finished[:number]:
            await event.wait()


class RecordedModel:
    """Answers with the recorded answers, and asks in a folder for those that are missing."""

    provider, model, endpoint = "compatible", "recorded", "recordings"

    def __init__(self, recorded: Sequence[Recording], folder: Path | None) -> None:
        self.recorded = {recording.name: recording for recording in recorded}
        self.decisions = RecordedDecisions([r for r in recorded if r.purpose == "curate"])
        self.folder = folder
        self.used: list[Recording] = []
        self.changed: list[str] = []
        self.tokens: dict[str, tuple[int, int]] = {}
        """Name → prompt and answer tokens, estimated."""

    async def complete(self, request: LLMRequest) -> LLMReply:
        reader = _reader.get()
        if reader is not None:
            reader.wave.arrive(reader.number)
        name = self._name(request, reader)
        prompt = "\n\n".join(m.content for m in request.messages if m.role != "system")
        prompt = _DELIMITER.sub(r"\1…>", prompt)
        recording = self.recorded.get(name)
        self.used.append(Recording(name, request.purpose, prompt, ""))
        mine = self.used[-1]
        self.changed += [name] if recording is None or recording.prompt != prompt else []
        if request.purpose == "curate" and self.decisions.recorded:
            mine.answer = self.decisions.answer(prompt)
        elif recording is not None:
            mine.answer = to_current_numbers(recording, prompt)
        else:
            mine.answer = await self._ask(name, request)
        self.tokens[name] = (
            sum(estimate_tokens(message.content) for message in request.messages),
            estimate_tokens(mine.answer),
        )
        if reader is not None:
            await reader.wave.wait_for_turn(reader.number)
        usage = TokenUsage(*self.tokens[name])
        return LLMReply(mine.answer, self.model, self.provider, usage)

    def _name(self, request: LLMRequest, reader: _Reader | None) -> str:
        """`reflect-<trace>`, `curate-03`; a second call for the same run ends in `-again`."""
        if reader is None:
            count = sum(1 for used in self.used if used.purpose == request.purpose)
            return f"{request.purpose}-{count + 1:02d}"
        used = [recording.name for recording in self.used]
        name = f"{request.purpose}-{reader.name}"
        while name in used:
            name += "-again"
        return name

    async def _ask(self, name: str, request: LLMRequest) -> str:
        if self.folder is None:
            raise RuntimeError(f"No answer is recorded for {name}. Use --record FOLDER.")
        ask, answer = self.folder / "ask", self.folder / "answer" / f"{name}.txt"
        ask.mkdir(parents=True, exist_ok=True)
        answer.parent.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join(f"##### {m.role} #####\n{m.content}" for m in request.messages)
        (ask / f"{name}.tmp").write_text(text, encoding="utf8")
        (ask / f"{name}.tmp").rename(ask / f"{name}.txt")
        while not answer.exists():  # noqa: ASYNC110 - somebody writes the file
            await asyncio.sleep(0.5)
        return answer.read_text(encoding="utf8")

    async def aclose(self) -> None:
        return None


# The chain


async def learn(server: MeasuredServer, model: RecordedModel) -> list[dict[str, Any]]:
    """Learn from all waves; the active bullets, in the order of their keys."""
    key = await new_tenant(server, "curate")
    tenant_id = to_tenant_id("curate")
    settings = Settings(
        _env_file=None, llm_provider="none", curation_interval=0, llm_max_tokens=8_192
    )  # type: ignore[call-arg]
    async with open_runtime(settings, server.url("hansei_app")) as opened:
        runtime = replace(opened, llm=model)
        with api(server) as port:
            for wave in waves():
                body = b"".join(_line(trace) for trace in wave)
                await asyncio.to_thread(send, port, key, body, "always")
                await drain(runtime, tenant_id)
        await clean_up_playbook(runtime, tenant_id, PLACE, new_id(), force=True)
        async with runtime.sessions.for_tenant(tenant_id) as session:
            playbook = await get_playbook(session, PLACE)
            rows = await list_active_bullets(session, playbook.scope_id) if playbook else []
    return [
        {
            "key": row.key,
            "when_to_use": row.when_to_use or "",
            "content": row.content,
            "observation_count": row.observation_count,
        }
        for row in sorted(rows, key=lambda row: row.key or "")
    ]


def _line(trace: dict[str, Any]) -> bytes:
    body = {**trace, "external_id": trace["id"], "task_key": trace["group"], "playbook": PLACE.name}
    return json.dumps(body).encode() + b"\n"


async def drain(runtime: Runtime, tenant_id: Any) -> None:
    """Execute all runs that are due: evaluations, then reflections together, then the rest."""
    while tickets := await waiting_tickets(runtime, tenant_id):
        kinds = [await _kind_of(runtime, ticket) for ticket in tickets]
        for ticket, kind in zip(tickets, kinds, strict=True):
            if kind == EVALUATE:
                await process_ticket(runtime, ticket)
        await _reflect(runtime, [t for t, k in zip(tickets, kinds, strict=True) if k == REFLECT])
        for ticket, kind in zip(tickets, kinds, strict=True):
            if kind not in (EVALUATE, REFLECT):
                await process_ticket(runtime, ticket)


async def _reflect(runtime: Runtime, tickets: Sequence[Ticket]) -> None:
    wave = Wave(len(tickets))

    async def reflect(number: int, ticket: Ticket) -> None:
        _reader.set(_Reader(wave, number, await _trace_name(runtime, ticket)))
        try:
            await process_ticket(runtime, ticket)
        finally:
            wave.arrive(number)
            wave.finished[number].set()

    await asyncio.gather(*(reflect(n, ticket) for n, ticket in enumerate(tickets)))


async def _kind_of(runtime: Runtime, ticket: Ticket) -> str:
    async with runtime.sessions.for_tenant(ticket.tenant_id) as session:
        run = await get_run(session, ticket.run_id)
        return run.kind if run is not None else ""


async def _trace_name(runtime: Runtime, ticket: Ticket) -> str:
    async with runtime.sessions.for_tenant(ticket.tenant_id) as session:
        run = await get_run(session, ticket.run_id)
        trace = await get_trace(session, run.trace_id) if run and run.trace_id else None
        return str(trace.external_id) if trace else str(ticket.run_id)


# Recordings and report


def write_recordings(folder: Path, model: RecordedModel, bullets: Sequence[dict[str, Any]]) -> None:
    """Store the prompts and answers, and the playbook that they make."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(vars(recording), ensure_ascii=False) for recording in model.used]
    (folder / "recordings.jsonl").write_text("\n".join(lines) + "\n", encoding="utf8")
    text = json.dumps(bullets, ensure_ascii=False, indent=1)
    (folder / "playbook.json").write_text(text + "\n", encoding="utf8")


def labeled_pairs(folder: Path) -> Iterator[tuple[str, str]]:
    """The contents of two bullets that a careful reader would merge."""
    file = folder / "duplicates.json"
    if file.exists():
        yield from (tuple(pair) for pair in json.loads(file.read_text(encoding="utf8")))


def to_report(model: RecordedModel, bullets: Sequence[dict[str, Any]]) -> Report:
    trace_count = sum(map(len, waves()))
    contents = {bullet["content"] for bullet in bullets}
    duplicates = [pair for pair in labeled_pairs(RECORDINGS) if set(pair) <= contents]
    report = Report(
        "curate",
        f"{trace_count} traces of {sum(count for _, count in SOURCES)} tasks; the model's answers "
        f"are recorded. Prompts: {len(model.used)}, of which {len(model.changed)} differ from the "
        "recorded ones.",
    )
    report.table("playbook", "The playbook", "bullets", "bullets a trace", "labeled duplicates")
    report.row(
        *("playbook", len(bullets), f"{len(bullets) / trace_count:.2f}", len(duplicates)),
    )
    report.table(
        *("model", "The model (estimated tokens)", "purpose", "calls", "calls a trace"),
        *("prompt tokens a trace", "answer tokens a trace"),
    )
    for purpose in dict.fromkeys(recording.purpose for recording in model.used):
        names = [recording.name for recording in model.used if recording.purpose == purpose]
        prompt, said = (sum(model.tokens[name][n] for name in names) for n in (0, 1))
        report.row(
            *("model", purpose, len(names), f"{len(names) / trace_count:.2f}"),
            *(f"{prompt / trace_count:,.0f}", f"{said / trace_count:,.0f}"),
        )
    return report


if __name__ == "__main__":
    typer.run(main)
