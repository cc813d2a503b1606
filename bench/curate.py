"""The learning chain with a strong model, replayed from recordings.

    python -m bench curate [--recordings FOLDER] [--record URL]

28 runs of 7 tasks (5 airline tasks and 2 questions, 4 attempts each) go through evaluate →
reflect → curate → apply in two waves, then the playbook is consolidated. Then 39 runs of all other
sources do the same with the same playbook. The answers of the model are those that a reader wrote;
`tests/recordings/curation` contains them. Prints bullets, model calls and tokens for each trace,
and the pairs of bullets that a labeled list calls duplicates, after each of the two sets. It counts
the prompts that differ from the recorded ones, because their answers may not fit any more.

`--record URL` asks an OpenAI-compatible endpoint (with its `/v1`) for the answers to prompts that
are not recorded exactly so, and stores them at once. Needs ../shared/data/traces.jsonl.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
import uvloop

from bench.corpus import SHARED
from bench.ingest import new_tenant, send
from bench.known_lessons import KnownLessons
from bench.real_traces import to_trace
from bench.recordings import (
    PATIENCE_SECONDS,
    RecordedDecisions,
    Recording,
    changed_sections,
    labeled_pairs,
    read_recordings,
    to_current_numbers,
    without_fence_numbers,
)
from bench.report import Report
from bench.server import ROOT, MeasuredServer, api, measured_server
from memory_api.bootstrap import open_runtime
from memory_api.core.ids import new_id, to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.curation.cleanup import clean_up_playbook
from memory_api.curation.queries import list_active_bullets
from memory_api.llm.port import LLM, LLMReply, LLMRequest, TokenUsage
from memory_api.llm.registry import open_llm
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import PlaybookRef
from memory_api.run_queue.port import Ticket
from memory_api.runs.chain import EVALUATE, REFLECT
from memory_api.runs.queries import get_run
from memory_api.runtime import Runtime
from memory_api.text.terms import estimate_tokens
from memory_api.traces.queries import get_trace
from memory_api.worker import process_ticket
from tests.support.tickets import waiting_tickets

RECORDINGS = ROOT / "tests" / "recordings" / "curation"
PLACE = PlaybookRef("default", "main")
SETS: dict[str, dict[str, slice]] = {
    "airline and questions": {
        "tau-bench-airline-gpt-4o": slice(5),
        "reflexion-hotpotqa-react": slice(2),
    },
    "other sources": {
        "reflexion-hotpotqa-react": slice(2, 3),
        "tau-bench-retail-avaljotsingh": slice(3),
        "swe-agent-demonstrations": slice(3),
        "real-persona-chat-llm": slice(8),
        "jmultiwoz-tc": slice(6),
        "claude-agent-sdk-ja-tielec": slice(3),
    },
}
"""Source → its tasks, in the order of `_by_interest`. The second set continues the playbook of the
first one.
"""
ATTEMPTS = 4
ATTEMPTS_PER_WAVE = 2


def main(
    recordings: Annotated[Path, typer.Option(help="Folder of the recordings.")] = RECORDINGS,
    record: Annotated[
        str | None, typer.Option(help="OpenAI-compatible endpoint for answers not recorded.")
    ] = None,
) -> None:
    configure_logging("console", "error")
    if not (SHARED / "traces.jsonl").exists():
        raise typer.BadParameter(f"{SHARED / 'traces.jsonl'} does not exist.")
    asked = open_llm("openai", model="recorded", base_url=record) if record else None
    model = RecordedModel(recordings, asked)
    with measured_server() as server:
        playbooks = uvloop.run(learn(server, model))
    report = to_report(model, playbooks, recordings)
    report.finish(write=record is None and recordings == RECORDINGS)
    if record:
        write_recordings(recordings, model, playbooks[-1])


def waves(tasks_by_source: Mapping[str, slice]) -> list[list[dict[str, Any]]]:
    """The traces of the first tasks of each source, in waves of attempts."""
    lines = (SHARED / "traces.jsonl").read_text(encoding="utf8").splitlines()
    attempts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for raw in map(json.loads, lines):
        attempts[raw["source"], raw["group"]].append(to_trace(raw))
    chosen: list[list[dict[str, Any]]] = []
    for source, which in tasks_by_source.items():
        tasks = [a[:ATTEMPTS] for (s, _), a in attempts.items() if s == source]
        chosen += sorted(tasks, key=_by_interest)[which]
    return [
        [trace for task in chosen for trace in task[start : start + ATTEMPTS_PER_WAVE]]
        for start in range(0, ATTEMPTS, ATTEMPTS_PER_WAVE)
    ]


def _by_interest(task: Sequence[dict[str, Any]]) -> tuple[bool, bool, bool]:
    """Tasks with different outcomes first, then tasks that failed, then those with attempts."""
    outcomes = {attempt["outcome"] for attempt in task}
    return len(outcomes) == 1, outcomes == {"success"}, len(task) == 1


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
    """Answers with the recorded answers. With another model, asks it for the answers to prompts
    that are not recorded exactly so, and appends them to the recordings.
    """

    provider, model, endpoint = "compatible", "recorded", "recordings"

    def __init__(self, folder: Path, asked: LLM | None) -> None:
        recorded = read_recordings(folder)
        self.recorded = {recording.name: recording for recording in recorded}
        self.decisions = RecordedDecisions([r for r in recorded if r.purpose == "curate"])
        self.folder = folder
        self.asked = asked
        self.used: list[Recording] = []
        self.known_lessons = KnownLessons()
        self.changed: dict[str, str] = {}
        """Name of a prompt that differs from the recorded one → the sections that differ."""
        self.tokens: dict[str, tuple[int, int]] = {}
        """Name → prompt and answer tokens, estimated."""
        self.ends: list[int] = []
        """The number of prompts up to the end of each set."""
        self._known = {(r.purpose, r.prompt): r.answer for r in recorded}

    async def complete(self, request: LLMRequest) -> LLMReply:
        reader = _reader.get()
        if reader is not None:
            reader.wave.arrive(reader.number)
        prompt = "\n\n".join(m.content for m in request.messages if m.role != "system")
        prompt = without_fence_numbers(prompt)
        mine = Recording(self._name(request, reader), request.purpose, prompt, "")
        self.used.append(mine)
        mine.answer = await self._answer(mine, request)
        self.tokens[mine.name] = (
            sum(estimate_tokens(message.content) for message in request.messages),
            estimate_tokens(mine.answer),
        )
        if reader is not None:
            await reader.wave.wait_for_turn(reader.number)
        usage = TokenUsage(*self.tokens[mine.name])
        return LLMReply(mine.answer, self.model, self.provider, usage)

    def end_set(self) -> None:
        self.ends.append(len(self.used))

    async def _answer(self, mine: Recording, request: LLMRequest) -> str:
        known = self._known.get((mine.purpose, mine.prompt))
        if known is not None:
            return known
        recording = self.recorded.get(mine.name)
        self.changed[mine.name] = (
            changed_sections(recording.prompt, mine.prompt) if recording else "not recorded"
        )
        if self.asked is not None:
            reply = await self.asked.complete(replace(request, timeout=PATIENCE_SECONDS))
            append_recording(self.folder, replace(mine, answer=reply.text))
            return reply.text
        if mine.purpose == "curate" and self.decisions.recorded:
            return self.decisions.answer(mine.prompt)
        if recording is None:
            raise RuntimeError(f"No answer is recorded for {mine.name}. Use --record URL.")
        return to_current_numbers(recording, mine.prompt)

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

    async def aclose(self) -> None:
        return None


# The chain


async def learn(server: MeasuredServer, model: RecordedModel) -> list[list[dict[str, Any]]]:
    """Learn from all sets; the active bullets after each one, in the order of their keys."""
    key = await new_tenant(server, "curate")
    tenant_id = to_tenant_id("curate")
    settings = Settings(
        _env_file=None, llm_provider="none", curation_interval=0, llm_max_tokens=8_192
    )  # type: ignore[call-arg]
    playbooks: list[list[dict[str, Any]]] = []
    async with open_runtime(settings, server.url("hansei_app")) as opened:
        runtime = replace(opened, llm=model)
        with api(server) as port:
            for tasks_by_source in SETS.values():
                for wave in waves(tasks_by_source):
                    await model.known_lessons.start_wave(runtime, tenant_id)
                    start = len(model.used)
                    body = b"".join(_line(trace) for trace in wave)
                    await asyncio.to_thread(send, port, key, body, "always")
                    await drain(runtime, tenant_id)
                    await model.known_lessons.end_wave(runtime, tenant_id, model.used[start:])
                await clean_up_playbook(runtime, tenant_id, PLACE, new_id(), force=True)
                playbooks.append(await _active_bullets(runtime, tenant_id))
                model.end_set()
    return playbooks


async def _active_bullets(runtime: Runtime, tenant_id: UUID) -> list[dict[str, Any]]:
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
    body = trace | {"playbook": PLACE.name}  # its `id` and `group` are aliases of the API
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


def append_recording(folder: Path, recording: Recording) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "recordings.jsonl").open("a", encoding="utf8") as file:
        file.write(json.dumps(vars(recording), ensure_ascii=False) + "\n")


def write_recordings(folder: Path, model: RecordedModel, bullets: Sequence[dict[str, Any]]) -> None:
    """Store the prompts and answers that were used, and the playbook that they make."""
    lines = [json.dumps(vars(recording), ensure_ascii=False) for recording in model.used]
    (folder / "recordings.jsonl").write_text("\n".join(lines) + "\n", encoding="utf8")
    text = json.dumps(bullets, ensure_ascii=False, indent=1)
    (folder / "playbook.json").write_text(text + "\n", encoding="utf8")


def to_report(
    model: RecordedModel, playbooks: Sequence[Sequence[dict[str, Any]]], folder: Path
) -> Report:
    pairs = list(labeled_pairs(folder))
    counts = [sum(map(len, waves(tasks))) for tasks in SETS.values()]
    report = Report(
        "curate",
        f"{sum(counts)} traces; the model's answers are recorded. Prompts: {len(model.used)}, of "
        f"which {len(model.changed)} differ from the recorded ones.",
    )
    report.table(
        *("playbook", "The playbook after each set"),
        *("after", "traces", "bullets", "bullets a trace", "labeled duplicates"),
    )
    for number, (name, bullets) in enumerate(zip(SETS, playbooks, strict=True), 1):
        contents = {bullet["content"] for bullet in bullets}
        duplicates = sum(set(pair) <= contents for pair in pairs)
        traces = sum(counts[:number])
        bullets_a_trace = f"{len(bullets) / traces:.2f}"
        report.row("playbook", name, traces, len(bullets), bullets_a_trace, duplicates)
    report.table(
        *("known", "Known lessons: bullets that a reflection repeats", "repeated"),
        *("shown in its prompt", "prompts that lack one"),
    )
    title = "Prompts that differ from the recorded ones"
    report.table("changed", title, "prompt", "sections that differ")
    report.table(
        *("model", "The model (estimated tokens)", "set", "purpose", "calls", "calls a trace"),
        *("prompt tokens a trace", "answer tokens a trace"),
    )
    report.row("known", *model.known_lessons.row())
    for changed in model.changed.items():
        report.row("changed", *changed)
    start = 0
    for name, count, end in zip(SETS, counts, model.ends, strict=True):
        used = model.used[start:end]
        start = end
        for purpose in dict.fromkeys(recording.purpose for recording in used):
            names = [recording.name for recording in used if recording.purpose == purpose]
            prompt, said = (sum(model.tokens[name][n] for name in names) for n in (0, 1))
            report.row(
                *("model", name, purpose, len(names), f"{len(names) / count:.2f}"),
                *(f"{prompt / count:,.0f}", f"{said / count:,.0f}"),
            )
    return report


if __name__ == "__main__":
    typer.run(main)
