"""The agent on questions with known passages: `python -m bench grace [--short]`.

Without a model. For each set (JSQuAD in Japanese, XQuAD in English), 200 questions calibrate the
confidence, 200 others measure it, and 50 of these are asked again without their passages.

Right: the passage is one that the set lists for the question. Asked back: the run waits for a
person. Confident: the level is `silent` or `notify`.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import typer
from httpx2 import ASGITransport, AsyncClient

from bench.ingest import new_tenant
from bench.report import Report
from bench.retrieval_quality import DEFAULT, RetrievalSet, load
from bench.server import MeasuredServer, measured_server
from memory_api.bootstrap import open_runtime
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.grace.confidence import calibrate, expected_calibration_error, fit_temperature
from memory_api.main import create_app
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.support.tickets import waiting_tickets

SETS = ("ja-jsquad", "en-xquad")
QUESTIONS, REMOVED = 200, 50
URL = "/api/v1/agents/runs"
COLLECTION = "passages"
IN_FLIGHT = 4


@dataclass(frozen=True)
class Service:
    """The API of one tenant in this process, and a worker that is driven from here."""

    api: AsyncClient
    runtime: Runtime
    tenant_id: UUID

    async def work(self) -> None:
        """Execute the runs that are due."""
        while tickets := await waiting_tickets(self.runtime, self.tenant_id):
            for start in range(0, len(tickets), IN_FLIGHT):
                await asyncio.gather(
                    *(process_ticket(self.runtime, t) for t in tickets[start : start + IN_FLIGHT])
                )


@dataclass(frozen=True)
class Asked:
    """How a question ended."""

    confidence: float
    level: str
    is_right: bool
    is_answered: bool
    has_answer: bool
    """Whether the answer contains the expected words."""


def main(
    short: Annotated[bool, typer.Option(help="A tenth of the questions, writes no file.")] = False,
) -> None:
    configure_logging("console", "error")
    report = Report(
        "grace",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}. Without"
        " a model. `interactive` is false: the run stops only at the level `escalate`. The weights"
        " of the score were fitted on every other question; the 200 measured ones are the others.",
    )
    report.table(
        *("answers", "200 questions that the passages answer; goals: cited right ≥ 85 %, ECE ≤ .1"),
        *("set", "passages", "best passage right", "cited right, of answered", "answered"),
        *("asked back", "confident"),
        *("expected words in the answer", "temperature", "ECE before", "ECE", "ECE of answered"),
    )
    report.table(
        *("removed", "50 of them without their passages; goal: ≥ 80 % asked back or not found"),
        *("set", "asked back or not found", "of these not found", "guessed", "guessed confidently"),
    )
    with measured_server() as server:
        for name in SETS:
            asyncio.run(measure(server, report, load(DEFAULT / name), 10 if short else 1))
    report.finish(write=not short)


@asynccontextmanager
async def open_service(server: MeasuredServer, name: str) -> AsyncGenerator[Service]:
    """The service in this process, as a new tenant uses it."""
    key = await new_tenant(server, name)
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    async with open_runtime(settings, server.url("hansei_app")) as runtime:
        app = create_app(settings, runtime=runtime)
        async with (
            app.router.lifespan_context(app),
            AsyncClient(
                transport=ASGITransport(app),
                base_url="http://bench",
                headers={"Authorization": f"Bearer {key}"},
                timeout=60,
            ) as api,
        ):
            yield Service(api, runtime, to_tenant_id(name))


async def measure(server: MeasuredServer, report: Report, data: RetrievalSet, divisor: int) -> None:
    async with open_service(server, data.name) as service:
        await measure_set(service, report, data, divisor)


async def measure_set(service: Service, report: Report, data: RetrievalSet, divisor: int) -> None:
    places, count = await load_passages(service, data), len(data.documents)
    keys, draw = list(data.queries), random.Random(0)
    before = await ask_all(service, data, draw.sample(keys[0::2], QUESTIONS // divisor))
    chosen = draw.sample(keys[1::2], QUESTIONS // divisor)
    after = await ask_all(service, data, chosen)
    temperature = fit_temperature([(each.confidence, each.is_right) for each in before])
    answered = [each for each in after if each.is_answered]
    report.row(
        *("answers", data.name, count, share(after, "is_right"), share(answered, "is_right")),
        *(share(after, "is_answered"), _percent(len(after) - len(answered), len(after))),
        _percent(sum(each.level in ("silent", "notify") for each in answered), len(after)),
        *(share(answered, "has_answer"), f"{temperature:.2f}", ece(after, 1.0)),
        *(ece(after, temperature), ece(answered, temperature)),
    )
    gone = chosen[: REMOVED // divisor]
    for document in {each for key in gone for each in data.relevant[key]}:
        url = f"/api/v1/collections/{COLLECTION}/documents/{places[document]}"
        (await service.api.delete(url)).raise_for_status()
    await service.work()
    guessed = await ask_all(service, data, gone)
    answers = [each for each in guessed if each.is_answered]
    sure = [each for each in answers if each.level in ("silent", "notify")]
    backed = len(guessed) - len(answers)
    report.row(
        *("removed", data.name, _percent(backed, len(guessed))),
        *(sum(each.level == "not found" for each in guessed), len(answers), len(sure)),
    )


async def load_passages(service: Service, data: RetrievalSet) -> Mapping[str, str]:
    """Load each passage as a document. Returns the document IDs by passage."""
    (await service.api.post("/api/v1/collections", json={"name": COLLECTION})).raise_for_status()
    places: dict[str, str] = {}
    for source, text in data.documents.items():
        answer = await service.api.post(
            f"/api/v1/collections/{COLLECTION}/documents",
            params={"source": source},
            content=text.encode(),
            headers={"Content-Type": "text/plain"},
        )
        answer.raise_for_status()
        places[source] = answer.json()["id"]
    await service.work()
    return places


async def ask_all(service: Service, data: RetrievalSet, keys: Sequence[str]) -> list[Asked]:
    started: list[str] = []
    for key in keys:
        body = {"query": data.queries[key], "interactive": False, "collections": [COLLECTION]}
        answer = await service.api.post(URL, json=body)
        answer.raise_for_status()
        started.append(answer.json()["id"])
    await service.work()
    return [
        to_asked((await service.api.get(f"{URL}/{run_id}")).json(), data, key)
        for run_id, key in zip(started, keys, strict=True)
    ]


def to_asked(run: Mapping[str, Any], data: RetrievalSet, key: str) -> Asked:
    """A run that waits has the confidence of its search, and its best passage counts as cited."""
    last = [step for step in run["steps"] if step["confidence"] is not None][-1]
    sources = run["sources"] or last["sources"]
    answered = run["state"] == "done" and bool(run["found"])
    level = last["level"] if run["state"] == "waiting" or answered else "not found"
    return Asked(
        confidence=last["confidence"] if run["confidence"] is None else run["confidence"],
        level=level,
        is_right=bool(sources) and sources[0]["source"] in data.relevant[key],
        is_answered=answered,
        has_answer=data.answers.get(key, "\0") in (run["answer"] or ""),
    )


def share(asked: Sequence[Asked], name: str) -> str:
    return _percent(sum(getattr(each, name) for each in asked), len(asked))


def _percent(count: int, total: int) -> str:
    return f"{count / max(1, total):.1%}"


def ece(asked: Sequence[Asked], temperature: float) -> str:
    pairs = [(calibrate(each.confidence, temperature), each.is_right) for each in asked]
    return f"{expected_calibration_error(pairs):.3f}"


if __name__ == "__main__":
    typer.run(main)
