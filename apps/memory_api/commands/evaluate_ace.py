"""`hansei eval ace`: the offline and online protocol of ACE on FiNER and Formula.

    offline  answer the test set without a playbook; learn from the training set; answer it again
             with the playbook, which no longer changes
    online   answer the test set in windows with the playbook so far; learn from each window after
             its answers were scored

The answering model is that of the settings, called directly. The service learns through its API, in
a project of its own, whose usage is the cost of learning.
Source: arXiv 2510.04618, section 4.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from hansei.client import AsyncHansei
from memory_api.bootstrap import open_configured_models
from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.llm.port import LLM, LLMReply, LLMRequest, Message, TokenUsage
from memory_api.llm.prices import price_usd

Task = Literal["finer", "formula"]
Mode = Literal["offline", "online", "both"]
WINDOW = 15
"""Samples between two updates of the playbook, as in ACE's online evaluation."""
MAX_PARALLEL_CALLS = 4
MAX_ANSWER_TOKENS = 2048
TOLERANCE = 1e-6
"""Largest relative difference of two numbers that count as equal."""
ANSWER_MARK = "ANSWER:"
SYSTEM = (
    "Answer the question. Think step by step. End with one line that starts with "
    f"`{ANSWER_MARK}` and has only the answer. Several answers are separated by commas."
)


@dataclass(frozen=True)
class EvaluationOptions:
    task: Task
    model: str | None = None
    data: Path | None = None
    mode: Mode = "both"
    epochs: int = 1
    limit: int | None = None
    labels: bool = True
    dry_run: bool = False


@dataclass(frozen=True)
class Sample:
    question: str
    target: str


@dataclass
class Score:
    """`correct` of `total` answers; of FiNER, each tag counts. `cost_usd` is None if the price of
    the model is unknown.
    """

    name: str
    correct: int = 0
    total: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    @property
    def accuracy(self) -> float:
        return self.correct / self.total if self.total else 0.0

    def add(self, right: int, total: int, reply: LLMReply, endpoint: str) -> None:
        self.correct, self.total = self.correct + right, self.total + total
        self.input_tokens += reply.usage.input_tokens
        self.output_tokens += reply.usage.output_tokens
        price: Decimal | None = Decimal(0)
        if reply.provider != ScriptedModel.provider:
            price = price_usd(
                reply.usage, provider=reply.provider, model=reply.model, endpoint=endpoint
            )
        known = price is not None and self.cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + float(price or 0) if known else None


class ScriptedModel:
    """The model of `--dry-run`: right and wrong answers in turn, without a network."""

    provider = "dry-run"
    model = "scripted"
    endpoint = ""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._targets = {sample.question: sample.target for sample in samples}
        self._count = 0

    async def complete(self, request: LLMRequest) -> LLMReply:
        self._count += 1
        question = request.messages[-1].content
        answer = self._targets[question] if self._count % 2 else "unknown"
        usage = TokenUsage(sum(len(m.content) // 4 for m in request.messages), 8)
        return LLMReply(f"{ANSWER_MARK} {answer}", self.model, self.provider, usage)

    async def aclose(self) -> None: ...


def run_evaluate_ace(options: EvaluationOptions, *, as_json: bool) -> None:
    """Ends with status 1 and one line without data or without a model."""
    try:
        report = _run(options)
    except ConfigurationError as error:
        raise SystemExit(f"error: {error}") from error
    sys.stdout.write(json.dumps(report) + "\n" if as_json else format_report(report))


def _run(options: EvaluationOptions) -> dict[str, Any]:
    """Raises `ConfigurationError`."""
    train, test = load_samples(options)
    settings = Settings.load()
    if options.model:
        settings = settings.model_copy(update={"llm_model": options.model})
    models: Sequence[LLM] = (
        [ScriptedModel([*train, *test])] if options.dry_run else open_configured_models(settings)
    )
    if not models:
        raise ConfigurationError("No model is configured. Set an API key, or pass --dry-run.")
    scores, learning = asyncio.run(_evaluate(options, models[0], train, test))
    return {
        "task": options.task,
        "model": models[0].model,
        "samples": {"train": len(train), "test": len(test)},
        "scores": [asdict(score) | {"accuracy": score.accuracy} for score in scores],
        "learning": learning,
    }


def load_samples(options: EvaluationOptions) -> tuple[list[Sample], list[Sample]]:
    """Training and test set: `TASK_train*.jsonl` and `TASK_test*.jsonl` of the folder, in the form
    of ACE (`context` or `question`, and `target`). Raises `ConfigurationError`.
    """
    if options.data is None:
        if options.dry_run:
            built_in = _built_in_samples(options.task)[: options.limit]
            return built_in, built_in
        raise ConfigurationError(
            "Pass --data with the folder of the data, or --dry-run for the built-in samples."
        )
    train = options.mode != "online"
    return (
        _read(options.data, f"{options.task}_train*.jsonl", options.limit) if train else [],
        _read(options.data, f"{options.task}_test*.jsonl", options.limit),
    )


def _read(folder: Path, pattern: str, limit: int | None) -> list[Sample]:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise ConfigurationError(f"{folder} has no file {pattern}.")
    samples: list[Sample] = []
    with paths[0].open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                fields: dict[str, Any] = json.loads(line)
                question = fields.get("question") or fields["context"]
                samples.append(Sample(str(question), str(fields["target"])))
            except (ValueError, KeyError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise ConfigurationError(f"{paths[0]}, line {number}: {reason}") from error
    return samples[:limit]


def _built_in_samples(task: Task) -> list[Sample]:
    if task == "formula":
        return [Sample(f"Revenue is {n}0, cost is {n}. What is the profit?", f"{9 * n}")
                for n in range(1, 7)]  # fmt: skip
    return [Sample(f"Which tags have the amounts of note {n}?", f"Revenues,Liabilities{n}")
            for n in range(1, 7)]  # fmt: skip


def score_answer(task: Task, answer: str, target: str) -> tuple[int, int]:
    """Right and all answers. FiNER asks for several tags, in order; Formula for one number."""
    if task == "formula":
        return int(_is_same_number(answer, target)), 1
    given = [part.strip().lower() for part in answer.split(",")]
    wanted = [part.strip().lower() for part in target.split(",")]
    right = sum(a == b for a, b in zip(given, wanted, strict=False))
    return right, len(wanted)


def _is_same_number(answer: str, target: str) -> bool:
    try:
        first, second = (float(text.strip(" $%").replace(",", "")) for text in (answer, target))
    except ValueError:
        return answer.strip().lower() == target.strip().lower()
    return abs(first - second) <= TOLERANCE * max(1.0, abs(second))


def final_answer(text: str) -> str:
    """What follows the last mark, otherwise the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.upper().startswith(ANSWER_MARK)]
    if marked:
        return marked[-1][len(ANSWER_MARK) :].strip().strip("`*")
    return lines[-1] if lines else ""


class Evaluation:
    """One evaluation, in a project and a playbook of its own."""

    def __init__(self, client: AsyncHansei, model: LLM, options: EvaluationOptions) -> None:
        self._client, self._model, self._options = client, model, options
        started = datetime.now(UTC)
        self.project = f"eval-ace-{options.task}-{started:%Y%m%dT%H%M%S%f}"
        self._slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)

    async def answer(self, score: Score, sample: Sample, playbook: str | None) -> dict[str, Any]:
        """Answer a sample, score it, and return its trace."""
        advice, retrieval_id = "", None
        if playbook is not None:
            block = await self._client.render_playbook(
                playbook, sample.question, project_id=self.project
            )
            advice, retrieval_id = block["text"], block["retrieval_id"]
        system = f"{SYSTEM}\n\n{advice}" if advice else SYSTEM
        request = LLMRequest(
            (Message("system", system), Message("user", sample.question)),
            max_tokens=MAX_ANSWER_TOKENS,
        )
        async with self._slots:
            reply = await self._model.complete(request)
        answer = final_answer(reply.text)
        right, total = score_answer(self._options.task, answer, sample.target)
        score.add(right, total, reply, self._model.endpoint)
        trace: dict[str, Any] = {
            "task_description": f"ACE {self._options.task}",
            "query": sample.question,
            "generated_answer": answer,
            "retrieval_id": retrieval_id,
            "events": [
                {"event_type": "user_message", "content": sample.question},
                {"event_type": "llm_response", "content": reply.text},
            ],
        }
        if self._options.labels:
            trace["ground_truth"] = sample.target
            trace["outcome"] = "success" if right == total else "failure"
        return trace

    async def answer_all(
        self, score: Score, samples: Sequence[Sample], playbook: str | None
    ) -> list[dict[str, Any]]:
        return await asyncio.gather(*(self.answer(score, each, playbook) for each in samples))

    async def learn(self, traces: Sequence[dict[str, Any]], playbook: str) -> None:
        """Send the traces and wait until the playbook has their lessons."""
        run_ids: list[str] = []
        for trace in traces:
            known = {name: value for name, value in trace.items() if value is not None}
            receipt = await self._client.create_trace(
                known | {"playbook": playbook}, reflect="always", project_id=self.project
            )
            if run_id := receipt.get("run_id"):
                run_ids.append(run_id)
        for run_id in run_ids:
            async for _run in self._client.follow_chain(run_id):
                pass

    async def run_offline(self, train: Sequence[Sample], test: Sequence[Sample]) -> list[Score]:
        training, after = Score("offline: training"), Score("offline: with the playbook")
        await self._client.replace_playbook("offline", {"bullets": []}, project_id=self.project)
        for _epoch in range(self._options.epochs):
            for window in _windows(train):
                await self.learn(await self.answer_all(training, window, "offline"), "offline")
        await self.answer_all(after, test, "offline")
        return [training, after]

    async def run_online(self, test: Sequence[Sample]) -> list[Score]:
        score = Score("online: with the playbook")
        await self._client.replace_playbook("online", {"bullets": []}, project_id=self.project)
        for window in _windows(test):
            await self.learn(await self.answer_all(score, window, "online"), "online")
        return [score]

    async def learning_cost(self) -> dict[str, Any]:
        """Model calls of the service for this project."""
        rows = [row async for row in self._client.list_usage(("day",), project_id=self.project)]
        return {
            "calls": sum(row["calls"] for row in rows),
            "input_tokens": sum(row["input_tokens"] for row in rows),
            "output_tokens": sum(row["output_tokens"] for row in rows),
            "usd": sum(row["usd"] for row in rows),
        }


def _windows(samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
    for start in range(0, len(samples), WINDOW):
        yield samples[start : start + WINDOW]


async def _evaluate(
    options: EvaluationOptions, model: LLM, train: Sequence[Sample], test: Sequence[Sample]
) -> tuple[list[Score], dict[str, Any]]:
    async with AsyncHansei() as client:
        evaluation = Evaluation(client, model, options)
        base = Score("without a playbook")
        await evaluation.answer_all(base, test, None)
        scores = [base]
        if options.mode != "online":
            scores += await evaluation.run_offline(train, test)
        if options.mode != "offline":
            scores += await evaluation.run_online(test)
        return scores, await evaluation.learning_cost()


def format_report(report: dict[str, Any]) -> str:
    lines = [f"ACE {report['task']} with {report['model']}: {report['samples']['test']} samples"]
    if report["model"] == ScriptedModel.model:
        lines.append("Dry run: the answers are scripted, so the accuracy means nothing.")
    lines.append(f"{'':<28}{'accuracy':>9}{'input':>12}{'output':>10}{'US dollars':>12}")
    for score in report["scores"]:
        cost = "unknown" if score["cost_usd"] is None else f"{score['cost_usd']:.4f}"
        lines.append(
            f"{score['name']:<28}{score['accuracy']:>9.1%}{score['input_tokens']:>12,}"
            f"{score['output_tokens']:>10,}{cost:>12}"
        )
    learning = report["learning"]
    lines.append(
        f"{'learning (service)':<28}{'':>9}{learning['input_tokens']:>12,.0f}"
        f"{learning['output_tokens']:>10,.0f}{learning['usd']:>12.4f}"
    )
    return "\n".join(lines) + "\n"
