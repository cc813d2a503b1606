"""What the agent learns from feedback: `python -m bench grace_curve [--short]`.

Without a model. For each set (JSQuAD in Japanese, XQuAD in English), 100 questions are asked. A
person answers each question back with the expected words, and gives feedback on each answer: right,
or wrong with the expected words. Then the same questions are asked again, and two groups that tell
apart what was learned by heart: paraphrases, written by hand before the second pass, of the
questions that were not right at first, and 100 other questions of the same passages. These groups
were also asked before any feedback, without a playbook.

Right: the answer contains the expected words. Asked back: the run waits for a person. Only the
first response counts, not what follows after a person has helped.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.grace import COLLECTION, SETS, URL, Service, load_passages, open_service
from bench.report import Report
from bench.retrieval_quality import DEFAULT, RetrievalSet, load
from bench.server import MeasuredServer, measured_server
from memory_api.core.telemetry import configure_logging

QUESTIONS = 100
PLAYBOOK = "answers"
PARAPHRASES = Path(__file__).with_suffix("").parent / "grace_paraphrases.tsv"


@dataclass(frozen=True)
class Question:
    text: str
    answer: str


@dataclass(frozen=True)
class Response:
    """The first response to a question."""

    question: Question
    run: Mapping[str, Any]

    @property
    def is_asked_back(self) -> bool:
        return self.run["state"] == "waiting"

    @property
    def is_right(self) -> bool:
        return is_right(self.question, self.run)

    @property
    def is_taught(self) -> bool:
        """Whether the plan cites a bullet."""
        return bool(self.run["cited_bullets"])


def is_right(question: Question, run: Mapping[str, Any]) -> bool:
    return run["state"] == "done" and question.answer in (run["answer"] or "")


def main(
    short: Annotated[bool, typer.Option(help="A tenth of the questions, writes no file.")] = False,
) -> None:
    configure_logging("console", "error")
    report = Report(
        "grace_curve",
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}. Without"
        " a model. A person answers what is asked back, and gives feedback on each answer of the"
        " first pass only.",
    )
    report.table(
        *("curve", "First responses; cites: the plan cites a bullet of the playbook"),
        *("set", "questions", "pass", "asked", "right", "asked back", "wrong"),
        *("cites", "right, of those that cite"),
    )
    report.table(
        *("state", "What the first pass left"),
        *("set", "right after help", "bullets", "silent / notify / confirm", "temperature"),
    )
    with measured_server() as server:
        for name in SETS:
            asyncio.run(measure(server, report, load(DEFAULT / name), 10 if short else 1))
    report.finish(write=not short)


async def measure(server: MeasuredServer, report: Report, data: RetrievalSet, divisor: int) -> None:
    async with open_service(server, data.name) as service:
        await load_passages(service, data)
        await measure_curve(service, report, data, QUESTIONS // divisor)


async def measure_curve(service: Service, report: Report, data: RetrievalSet, count: int) -> None:
    taught, others = draw_questions(data, count)
    paraphrases = paraphrase(taught)
    held_out = {"paraphrases": paraphrases, "others": others}
    before = {name: await ask(service, group, None) for name, group in held_out.items()}
    for name, responses in before.items():
        add_row(report, data, name, "before", responses)
    first = await ask(service, taught, PLAYBOOK)
    add_row(report, data, "the same", "first", first)
    helped = await teach(service, first)
    add_row(report, data, "the same", "second", await ask(service, taught, PLAYBOOK))
    for name, group in held_out.items():
        add_row(report, data, name, "after", await ask(service, group, PLAYBOOK))
    learned = (await service.api.get("/api/v1/agents/calibration")).json()
    url = f"/api/v1/playbooks/{PLAYBOOK}/bullets"
    bullets = (await service.api.get(url, params={"limit": 200})).json()["items"]
    report.row(
        *("state", data.name, f"{helped} of {len(taught)}", len(bullets)),
        f"{learned['silent']:.2f} / {learned['notify']:.2f} / {learned['confirm']:.2f}",
        f"{learned['temperature']:.2f}",
    )


def draw_questions(data: RetrievalSet, count: int) -> tuple[list[Question], list[Question]]:
    """The questions to teach, and others whose passage is one of theirs."""
    draw = random.Random(0)
    keys = [key for key in data.queries if key in data.answers]
    taught = draw.sample(keys, count)
    passages = {passage for key in taught for passage in data.relevant[key]}
    rest = [k for k in keys if k not in taught and passages & data.relevant[k].keys()]
    others = draw.sample(rest, min(count, len(rest)))
    return to_questions(data, taught), to_questions(data, others)


def to_questions(data: RetrievalSet, keys: Iterable[str]) -> list[Question]:
    return [Question(data.queries[key], data.answers[key]) for key in keys]


def paraphrase(questions: Sequence[Question]) -> list[Question]:
    """The paraphrases of those that have one."""
    lines = PARAPHRASES.read_text("utf8").splitlines()
    other_words = dict(line.split("\t") for line in lines)
    return [Question(other_words[q.text], q.answer) for q in questions if q.text in other_words]


async def ask(
    service: Service, questions: Sequence[Question], playbook: str | None
) -> list[Response]:
    started: list[str] = []
    for question in questions:
        body = {"query": question.text, "interactive": False, "collections": [COLLECTION]}
        answer = await service.api.post(URL, json=body | {"playbook": playbook})
        answer.raise_for_status()
        started.append(answer.json()["id"])
    await service.work()
    return [
        Response(question, (await service.api.get(f"{URL}/{run_id}")).json())
        for question, run_id in zip(questions, started, strict=True)
    ]


async def teach(service: Service, responses: Sequence[Response]) -> int:
    """Answer what was asked back with the question and the expected words, and judge each answer.
    Returns how many answers are right in the end.
    """
    for response in responses:
        question = response.run["intervention"]
        if response.is_asked_back:
            url = f"{URL}/{response.run['id']}/interventions/{question['id']}/answer"
            words = f"{response.question.text} {response.question.answer}"
            body = {"action": "input", "input": words}
            (await service.api.post(url, json=body)).raise_for_status()
    await service.work()
    right = 0
    for response in responses:
        run = (await service.api.get(f"{URL}/{response.run['id']}")).json()
        if run["state"] == "waiting":  # the words of the person did not help either
            url = f"{URL}/{run['id']}/interventions/{run['intervention']['id']}/answer"
            (await service.api.post(url, json={"action": "proceed"})).raise_for_status()
            await service.work()
            run = (await service.api.get(f"{URL}/{run['id']}")).json()
        is_good = is_right(response.question, run)
        right += is_good
        verdict = {"verdict": "right" if is_good else "wrong"}
        answer = {} if is_good else {"answer": response.question.answer}
        url = f"{URL}/{run['id']}/feedback"
        (await service.api.post(url, json=verdict | answer)).raise_for_status()
    await service.work()
    return right


def add_row(
    report: Report, data: RetrievalSet, questions: str, name: str, responses: Sequence[Response]
) -> None:
    count = max(1, len(responses))
    right = sum(each.is_right for each in responses)
    back = sum(each.is_asked_back for each in responses)
    citing = [each for each in responses if each.is_taught]
    report.row(
        *("curve", data.name, questions, name, len(responses)),
        *(f"{n / count:.0%}" for n in (right, back, len(responses) - right - back)),
        *(len(citing), sum(each.is_right for each in citing)),
    )


if __name__ == "__main__":
    typer.run(main)
