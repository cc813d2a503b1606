"""The agent with a strong reader in place of a model, replayed from recordings.

    python -m bench grace_with_model [--questions 20] [--record URL] [--recordings FOLDER]

The first 20 of the measured questions of `bench grace` for each set, JSQuAD in Japanese and XQuAD
in English, one after the other. The person who is asked only ever says `proceed` (or
`skip` to a question of the agent), so an intervention changes no answer: it is needless if the
answer is right.

Right: the answer has the expected words, in any order. Not found: the agent says that the sources
do not suffice. Wrong: any other answer.

`--record URL` asks an OpenAI-compatible endpoint (with its `/v1`) for the answers to prompts that
are not recorded exactly so, all questions at the same time, and stores them at once. Needs
../shared/data/retrieval.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from bench.grace import COLLECTION, SETS, URL, Service, load_passages, open_service
from bench.grace import QUESTIONS as DRAWN
from bench.recordings import (
    PATIENCE_SECONDS,
    Recording,
    changed_sections,
    read_recordings,
    without_fence_numbers,
)
from bench.report import Report
from bench.retrieval_quality import DEFAULT, RetrievalSet, load
from bench.server import ROOT, MeasuredServer, measured_server
from memory_api.core.telemetry import configure_logging
from memory_api.grace.config import GraceConfig, load_config
from memory_api.grace.interventions import AGENT
from memory_api.grace.step import AgentRunStep
from memory_api.llm.port import LLM, LLMReply, LLMRequest, TokenUsage
from memory_api.llm.registry import open_llm
from memory_api.run_queue.port import Ticket
from memory_api.runs.queries import get_run
from memory_api.text.terms import content_terms, document_weights, estimate_tokens
from memory_api.worker import RUN_STEPS, process_ticket
from tests.support.tickets import waiting_tickets

RECORDINGS = ROOT / "tests" / "recordings" / "grace"
QUESTIONS = 20
_question: ContextVar[str] = ContextVar("_question", default="")


def main(
    questions: Annotated[int, typer.Option(help="Questions of each set.")] = QUESTIONS,
    recordings: Annotated[Path, typer.Option(help="Folder of the recordings.")] = RECORDINGS,
    record: Annotated[
        str | None, typer.Option(help="OpenAI-compatible endpoint for answers not recorded.")
    ] = None,
) -> None:
    configure_logging("console", "error")
    model = RecordedAgentModel(recordings, record)
    with measured_server() as server:
        responses = {
            name: asyncio.run(answer_questions(server, load(DEFAULT / name), model, questions))
            for name in SETS
        }
    report = to_report(model, responses)
    report.finish(write=record is None and recordings == RECORDINGS and questions == QUESTIONS)
    if record is None and not model.changed:
        model.drop_unused()


# The model


class RecordedAgentModel:
    """Answers each prompt with the recorded answer to the same prompt, else with that to the prompt
    of the same name. With another model, asks it for the answers to prompts that are not recorded
    exactly so, and appends them.
    """

    provider, model, endpoint = "compatible", "recorded", "recordings"

    def __init__(self, folder: Path, record: str | None) -> None:
        self.folder, self.record = folder, record
        self.asked: LLM | None = None
        self.used: list[Recording] = []
        self.changed: dict[str, str] = {}
        """Name of a prompt that differs from the recorded one → the sections that differ."""
        recorded = read_recordings(folder)
        self._by_name = {each.name: each for each in recorded}
        self._by_prompt = {(each.purpose, each.prompt): each for each in recorded}

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Open the other model, if there is one, in this event loop."""
        if self.record:
            self.asked = open_llm("openai", model="recorded", base_url=self.record)
        yield
        if self.asked is not None:
            await self.asked.aclose()

    async def complete(self, request: LLMRequest) -> LLMReply:
        prompt = "\n\n".join(m.content for m in request.messages)
        mine = Recording(self._name(request.purpose), request.purpose, "", "")
        mine.prompt = without_fence_numbers(prompt)
        self.used.append(mine)
        mine.answer = await self._answer(mine, request)
        usage = TokenUsage(estimate_tokens(mine.prompt), estimate_tokens(mine.answer))
        return LLMReply(mine.answer, self.model, self.provider, usage)

    async def _answer(self, mine: Recording, request: LLMRequest) -> str:
        same = self._by_prompt.get((mine.purpose, mine.prompt))
        if same is not None:
            return same.answer
        known = self._by_name.get(mine.name)
        self.changed[mine.name] = (
            changed_sections(known.prompt, mine.prompt) if known else "not recorded"
        )
        if self.asked is not None:
            reply = await self.asked.complete(replace(request, timeout=PATIENCE_SECONDS))
            self._append(replace(mine, answer=reply.text))
            return reply.text
        if known is None:
            raise RuntimeError(f"No answer is recorded for {mine.name}. Use --record URL.")
        return known.answer

    def _name(self, purpose: str) -> str:
        """`plan-<set>-<question>`; a second call for the same question ends in `-again`."""
        used = {recording.name for recording in self.used}
        name = f"{purpose.removeprefix('grace_')}-{_question.get()}"
        while name in used:
            name += "-again"
        return name

    def _append(self, recording: Recording) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "recordings.jsonl").open("a", encoding="utf8") as file:
            file.write(json.dumps(vars(recording), ensure_ascii=False) + "\n")

    def drop_unused(self) -> None:
        """Store only the recordings that were used, in their order."""
        lines = [json.dumps(vars(recording), ensure_ascii=False) for recording in self.used]
        text = "\n".join(lines) + "\n"
        (self.folder / "recordings.jsonl").write_text(text, encoding="utf8")

    async def aclose(self) -> None:
        return None


# The runs


@dataclass
class Answered:
    """A question, the run when it has ended, and what the person was asked."""

    key: str
    expected: str
    run: Mapping[str, Any]
    interventions: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def ending(self) -> str:
        """`right`, `not found` or `wrong`."""
        if self.run["state"] != "done" or not self.run["found"]:
            return "not found"
        return "right" if has_words(self.run["answer"] or "", self.expected) else "wrong"


def has_words(answer: str, expected: str) -> bool:
    """Whether the answer has the expected words: together, or each of them somewhere."""
    words = content_terms(expected)
    known = document_weights(answer)
    return _plain(expected) in _plain(answer) or (bool(words) and all(w in known for w in words))


def _plain(text: str) -> str:
    """Without spaces and punctuation, and in lower case: not what an answer is about."""
    return re.sub(r"[\W_]", "", text).lower()


async def answer_questions(
    server: MeasuredServer, data: RetrievalSet, model: RecordedAgentModel, count: int
) -> list[Answered]:
    """Ask the questions, all at the same time while answers are recorded."""
    async with open_service(server, data.name) as opened, model.connected():
        await load_passages(opened, data)
        settings = opened.runtime.settings.model_copy(update={"reflective_memory_enabled": False})
        service = replace(opened, runtime=replace(opened.runtime, llm=model, settings=settings))
        keys = draw_keys(data, count)
        groups = [keys] if model.asked is not None else [[key] for key in keys]
        return [each for group in groups for each in await follow(service, data, group)]


def draw_keys(data: RetrievalSet, count: int) -> list[str]:
    """The first questions of those that `bench grace` measures."""
    keys, draw = list(data.queries), random.Random(0)
    draw.sample(keys[0::2], DRAWN)
    return draw.sample(keys[1::2], DRAWN)[:count]


async def follow(service: Service, data: RetrievalSet, keys: Sequence[str]) -> list[Answered]:
    """Ask these questions and say `proceed` until all have ended."""
    names: dict[UUID, str] = {}
    asked: list[Answered] = []
    for key in keys:
        body = {"query": data.queries[key], "collections": [COLLECTION]}
        answer = await service.api.post(URL, json=body)
        answer.raise_for_status()
        names[UUID(answer.json()["id"])] = f"{data.name}-{key}"
        asked.append(Answered(key, data.answers.get(key, "\0"), answer.json()))
    await work(service, names)
    while waiting := [each async for each in _waiting(service, asked)]:
        for each in waiting:
            question = each.run["intervention"]
            each.interventions.append(question)
            url = f"{URL}/{each.run['id']}/interventions/{question['id']}/answer"
            action = "proceed" if "proceed" in question["options"] else "skip"
            (await service.api.post(url, json={"action": action})).raise_for_status()
        await work(service, names)
    return asked


async def _waiting(service: Service, asked: Sequence[Answered]) -> Any:
    """Those of the runs that wait for a person. Reads all of them."""
    for each in asked:
        each.run = (await service.api.get(f"{URL}/{each.run['id']}")).json()
        if each.run["state"] == "waiting":
            yield each


async def work(service: Service, names: Mapping[UUID, str]) -> None:
    """Execute the runs that are due, all at the same time."""
    steps = {**RUN_STEPS, AGENT: AgentRunStep(_patient_config())}

    async def execute(ticket: Ticket) -> None:
        async with service.runtime.sessions.for_tenant(service.tenant_id) as session:
            run = await get_run(session, ticket.run_id)
        assert run is not None
        _question.set(names.get(UUID(run.input.get("agent_run_id", str(run.id))), ""))
        await process_ticket(service.runtime, ticket, steps)

    while tickets := await waiting_tickets(service.runtime, service.tenant_id):
        await asyncio.gather(*map(execute, tickets))


def _patient_config() -> GraceConfig:
    """The default settings, without the limits that a person who writes answers does not meet."""
    config = load_config()
    patient = {"step_timeout_seconds": PATIENCE_SECONDS, "cooldown_seconds": 0}
    return config.model_copy(update={"executor": config.executor.model_copy(update=patient)})


# The report


def to_report(model: RecordedAgentModel, responses: Mapping[str, Sequence[Answered]]) -> Report:
    report = Report(
        "grace_with_model",
        "The model's answers are those that a reader wrote (tests/recordings/README.md). The person"
        f" only says `proceed`. Prompts: {len(model.used)}, of which {len(model.changed)} differ"
        " from the recorded ones.",
    )
    report.table(
        *("answers", "The answers", "set", "questions", "right", "not found", "wrong"),
        *("right without a question", "calls of the model a question"),
    )
    report.table(
        *("interventions", "What the person was asked", "set", "what", "level"),
        *("questions", "needless: the answer was right", "then not found", "then wrong"),
    )
    report.table(
        *("not right", "Answers that were not right", "set", "question", "ending"),
        *("expected", "answer", "confidence", "asked"),
    )
    for name, answered in responses.items():
        endings = Counter(each.ending for each in answered)
        calls = sum(f"-{name}-" in recording.name for recording in model.used)
        alone = sum(each.ending == "right" and not each.interventions for each in answered)
        report.row(
            *("answers", name, len(answered), endings["right"], endings["not found"]),
            *(endings["wrong"], alone, f"{calls / max(1, len(answered)):.1f}"),
        )
        asked = Counter(
            (what, level, each.ending) for each in answered for what, level in _asked(each)
        )
        for what, level in dict.fromkeys((what, level) for what, level, _ in sorted(asked)):
            found = [asked[what, level, end] for end in ("right", "not found", "wrong")]
            report.row("interventions", name, what, level, sum(found), *found)
        for each in answered:
            if each.ending != "right":
                report.row(
                    *("not right", name, each.key, each.ending, each.expected),
                    *(_one_line(each.run["answer"]), each.run["confidence"]),
                    " ".join(f"{what}: {level}" for what, level in _asked(each)) or "nothing",
                )
    report.table("changed", "Prompts that differ from the recorded ones", "prompt", "sections")
    for changed in model.changed.items():
        report.row("changed", *changed)
    return report


def _asked(answered: Answered) -> Iterator[tuple[str, str]]:
    """What each question was about: a plan, or the action of a step."""
    actions = {step["step_id"]: step["action"] for step in answered.run["steps"]}
    for question in answered.interventions:
        yield actions.get(question["step_id"], question["kind"]), question["level"]


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "/")[:200]


if __name__ == "__main__":
    typer.run(main)
