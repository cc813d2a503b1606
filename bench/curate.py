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

from bench.data import SHARED, to_trace
from bench.harness import ROOT, MeasuredServer, Report, api, measured_server, new_tenant, send
from bench.recorded_model import RecordedCall, RecordedModel, user_prompt, write_calls
from bench.recordings import (
    RecordedDecisions,
    changed_sections,
    find_run,
    labeled_pairs,
    to_current_numbers,
)
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
from memory_api.runtime import Runtime
from memory_api.text.terms import estimate_tokens
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
    model = RecordedCurator(recordings, asked)
    with measured_server() as server:
        playbooks = uvloop.run(learn(server, model))
    report = to_report(model, playbooks, recordings)
    report.finish(write=record is None and recordings == RECORDINGS)
    if record:
        write_calls(model.file, model.used)
        text = json.dumps(playbooks[-1], ensure_ascii=False, indent=1)
        (recordings / "playbook.json").write_text(text + "\n", encoding="utf8")


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


class RecordedCurator(RecordedModel):
    """Answers a prompt that differs with the recorded answer of the same run, and those of curation
    with the operations that were recorded for the same lessons.
    """

    def __init__(self, folder: Path, asked: LLM | None) -> None:
        super().__init__(folder / "recordings.jsonl", asked)
        curations = [call for call in self.by_name.values() if call.purpose == "curate"]
        self.decisions = RecordedDecisions(curations)
        self.changed: dict[str, str] = {}
        """Name of a prompt that differs from the recorded one → the sections that differ."""
        self.tokens: dict[str, tuple[int, int]] = {}
        """Name → prompt and answer tokens, estimated."""
        self.ends: list[int] = []
        """The number of prompts up to the end of each set."""

    async def complete(self, request: LLMRequest) -> LLMReply:
        reader = _reader.get()
        if reader is not None:
            reader.wave.arrive(reader.number)
        reply = await super().complete(request)
        tokens = sum(estimate_tokens(message.content) for message in request.messages)
        used = tokens, estimate_tokens(reply.text)
        self.tokens[self.used[-1].name] = used
        if reader is not None:
            await reader.wave.wait_for_turn(reader.number)
        return replace(reply, usage=TokenUsage(*used))

    def to_call(self, request: LLMRequest) -> RecordedCall:
        """`reflect-<trace>`, `curate-03`; a second call for the same run ends in `-again`."""
        reader = _reader.get()
        if reader is None:
            count = sum(1 for used in self.used if used.purpose == request.purpose)
            name = f"{request.purpose}-{count + 1:02d}"
        else:
            name = f"{request.purpose}-{reader.name}"
            while name in self.tokens:
                name += "-again"
        return RecordedCall(request.purpose, user_prompt(request), name=name)

    async def find_answer(self, mine: RecordedCall, request: LLMRequest) -> RecordedCall:
        recorded = self.by_name.get(mine.name)
        self.changed[mine.name] = (
            changed_sections(recorded.prompt, mine.prompt) if recorded else "not recorded"
        )
        if self.asked is None and mine.purpose == "curate" and self.decisions.recorded:
            return replace(mine, answer=self.decisions.answer(mine.prompt))
        if self.asked is None and recorded is not None:
            return replace(mine, answer=to_current_numbers(recorded, mine.prompt))
        return await self.ask(mine, request, self.asked)


# The chain


async def learn(server: MeasuredServer, model: RecordedCurator) -> list[list[dict[str, Any]]]:
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
                    body = b"".join(_line(trace) for trace in wave)
                    await asyncio.to_thread(send, port, key, body, "always")
                    await drain(runtime, tenant_id)
                await clean_up_playbook(runtime, tenant_id, PLACE, new_id(), force=True)
                playbooks.append(await _active_bullets(runtime, tenant_id))
                model.ends.append(len(model.used))
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
        kinds = [(await find_run(runtime, ticket))[0] for ticket in tickets]
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
        _, name = await find_run(runtime, ticket)
        _reader.set(_Reader(wave, number, name))
        try:
            await process_ticket(runtime, ticket)
        finally:
            wave.arrive(number)
            wave.finished[number].set()

    await asyncio.gather(*(reflect(n, ticket) for n, ticket in enumerate(tickets)))


# The report


def to_report(
    model: RecordedCurator, playbooks: Sequence[Sequence[dict[str, Any]]], folder: Path
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
    title = "Prompts that differ from the recorded ones"
    report.table("changed", title, "prompt", "sections that differ")
    report.table(
        *("model", "The model (estimated tokens)", "set", "purpose", "calls", "calls a trace"),
        *("prompt tokens a trace", "answer tokens a trace"),
    )
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
