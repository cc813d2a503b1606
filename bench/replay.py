"""Measures whether a playbook helps on your tasks: `python -m bench replay --tasks FILE`.

    OPENAI_API_KEY=… python -m bench replay --tasks mine.jsonl --playbook-file playbook.json
    python -m bench replay --tasks mine.jsonl --playbook support --url http://… --api-key …
    python -m bench replay --tasks mine.jsonl --learn 0.5

The service answers each task (POST /workflow/run) with the playbook and with an empty one, in
random order, `--repeats` times. Answers are scored against `ground_truth` (as text, number or
code), by the regular expression `check`, or by your own command (`--check`). With `--learn`, the
playbook first learns from the outcomes of this share of the tasks, and only the others are
measured. All tasks with the same `task_key` are in the same part.

Without `--url`, it starts a service with the provider in the environment (docs/configuration.md)
and deletes it afterwards.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.ingest import new_tenant
from bench.paired import (
    RIGHT,
    WRONG,
    Task,
    Unfit,
    by_command,
    difference,
    read_tasks,
    score,
    split,
)
from bench.report import Report
from bench.server import api, measured_server, worker
from hansei import Hansei

WITHOUT = "replay-without-a-playbook"
"""The name of an empty playbook, for the same prompt without bullets."""


@dataclass(frozen=True)
class Answered:
    """One answer and its cost. `score` is 0 to 1, or None if the answer cannot be scored."""

    task: Task
    text: str
    score: float | None
    trace_id: str
    shown: int
    tokens: int
    usd: float | None


@dataclass(frozen=True)
class Side:
    """The answers of one arm, in the order of the pairs."""

    answers: Sequence[Answered]

    def scores(self, other: Side) -> dict[str, float]:
        """Key → mean score over those repeats that could be scored on both sides."""
        found: dict[str, list[float]] = {}
        for mine, its in zip(self.answers, other.answers, strict=True):
            if mine.score is not None and its.score is not None:
                found.setdefault(mine.task.key, []).append(mine.score)
        return {key: sum(scores) / len(scores) for key, scores in found.items()}

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.answers)

    @property
    def usd(self) -> float | None:
        prices = [one.usd for one in self.answers if one.usd is not None]
        return sum(prices) if len(prices) == len(self.answers) else None


@dataclass(frozen=True)
class Replay:
    """How the tasks are sent to a service. Several threads use `client`."""

    client: Hansei
    playbook: str
    project: str | None = None
    pattern: re.Pattern[str] | None = None
    command: str | None = None
    at_once: int = 4
    seed: int = 1

    def ask(self, task: Task, playbook: str) -> Answered:
        """Answer a task once and score the answer. Raises `Unfit` if the service has no model."""
        response = self.client.run_workflow(
            task.query, playbook, project_id=self.project, task_key=task.key
        )
        if response["engine"] != "llm" and not response["degraded"]:
            raise Unfit("The service has no model: see HANSEI_LLM_PROVIDER.")
        used = self.client.get_run(response["run_id"])["usage"] or {}
        text = without_citations(response["llm_response"], response["bullet_keys"])
        return Answered(
            task=task,
            text=text,
            score=None if response["degraded"] else self.score(task, text),
            trace_id=response["trace_id"],
            shown=response["search_results_count"],
            tokens=used.get("input_tokens", 0) + used.get("output_tokens", 0),
            usd=used.get("usd"),
        )

    def score(self, task: Task, text: str) -> float | None:
        return (
            by_command(self.command, task, text)
            if self.command
            else score(task, text, self.pattern)
        )

    def measure(self, tasks: Sequence[Task], repeats: int) -> tuple[Side, Side]:
        """Answer each task with the playbook and without it, `repeats` times, in random order.
        Raises `Unfit` if the empty playbook is not empty.
        """
        draw = random.Random(self.seed)
        jobs = [(task, draw.random() < 0.5) for task in tasks for _ in range(repeats)]
        with ThreadPoolExecutor(self.at_once) as pool:
            pairs = list(pool.map(lambda job: self._pair(*job), jobs))
        with_, without = Side([one for one, _ in pairs]), Side([other for _, other in pairs])
        if any(one.shown for one in without.answers):
            raise Unfit(f"The playbook {WITHOUT!r} must be empty.")
        return with_, without

    def _pair(self, task: Task, with_first: bool) -> tuple[Answered, Answered]:
        if with_first:
            first = self.ask(task, self.playbook)
            return first, self.ask(task, WITHOUT)
        first = self.ask(task, WITHOUT)
        return self.ask(task, self.playbook), first

    def learn(self, tasks: Sequence[Task]) -> LearnedTasks:
        """Answer each task with the playbook, record its outcome, and wait until the service has
        learned from it.
        """
        with ThreadPoolExecutor(self.at_once) as pool:
            chains = list(pool.map(self._record_and_follow, tasks))
        return LearnedTasks(
            tasks=len(tasks),
            with_outcome=sum(1 for runs in chains if runs),
            changes=sum(len(run["result"]["changes"]) for runs in chains for run in runs
                        if run["kind"] == "apply" and run["state"] == "done"),
            failed=[run for runs in chains for run in runs if run["state"] != "done"],
            tokens=sum(_tokens(run["usage"]) for runs in chains for run in runs),
        )  # fmt: skip

    def _record_and_follow(self, task: Task) -> list[Any]:
        """The runs of the chain that the outcome starts; none if the answer has no score."""
        done = self.ask(task, self.playbook)
        if done.score is None:
            return []
        outcome = {RIGHT: "success", WRONG: "failure"}.get(done.score, "partial")
        more = {} if task.right is None else {"ground_truth": task.right}
        sent = self.client.record_outcome(done.trace_id, outcome, **more)
        run_id = sent.get("run_id")
        return list(self.client.follow_chain(run_id, timeout=600)) if run_id else []

    def count_known_tasks(self, tasks: Iterable[Task]) -> int:
        """Number of tasks with a recorded outcome. The service may have learned from them."""

        def has_outcome(key: str) -> bool:
            seen = self.client.list_traces(task_key=key, project_id=self.project)
            return any(trace["outcome"] for trace in seen)

        return sum(has_outcome(key) for key in {task.key for task in tasks})


@dataclass(frozen=True)
class LearnedTasks:
    """The result of learning: `changes` of bullets, and the runs that `failed`."""

    tasks: int
    with_outcome: int
    changes: int
    failed: Sequence[Any]
    tokens: int


def _tokens(usage: Mapping[str, Any] | None) -> int:
    return usage["input_tokens"] + usage["output_tokens"] if usage else 0


def without_citations(text: str, keys: Sequence[str]) -> str:
    """An answer without the citations `[key]` of its bullets, which exist only on the side with a
    playbook.
    """
    if not keys:
        return text
    key = "|".join(map(re.escape, keys))
    return re.sub(rf"\s*\[(?:{key})(?:[,;]\s*(?:{key}))*\]", "", text)


def import_playbook(client: Hansei, name: str, project: str | None, file: Path) -> None:
    """Replace the playbook by a file, in any format that the service reads."""
    client.replace_playbook(name, file.read_bytes(), project_id=project)


@contextmanager
def own_service() -> Iterator[tuple[str, str]]:
    """Run a service with its own worker and database. Yields its URL and API key."""
    with ExitStack() as stack:
        server = stack.enter_context(measured_server())
        port = stack.enter_context(api(server))
        stack.enter_context(worker(server, {}))
        yield f"http://127.0.0.1:{port}", asyncio.run(new_tenant(server, "replay"))


def report_results(report: Report, with_: Side, without: Side) -> None:
    """Fill the tables. Raises `Unfit` if no answer could be scored."""
    found = difference(with_.scores(without), without.scores(with_))
    report.table("arms", "Answers", "", "answers", "not scored", "mean score", "tokens", "USD")
    for name, side, mean in (("with", with_, found.with_), ("without", without, found.without)):
        unknown = sum(one.score is None for one in side.answers)
        usd = "price unknown" if side.usd is None else f"{side.usd:.4f}"
        report.row("arms", name, len(side.answers), unknown, f"{mean:.3f}", side.tokens, usd)
    report.table(
        *("pairs", "With minus without, task by task", "tasks", "better", "same", "worse"),
        *("difference", "95 % interval"),
    )
    apart, interval = found.with_ - found.without, f"{found.low:+.3f} to {found.high:+.3f}"
    report.row("pairs", found.tasks, found.better, found.same, found.worse, f"{apart:+.3f}",
               interval)  # fmt: skip
    shown = sum(one.shown > 0 for one in with_.answers)
    if shown < len(with_.answers):
        report.table("empty", "Answers with the playbook, but without a matching bullet", "answers")
        report.row("empty", len(with_.answers) - shown)


def main(
    tasks: Annotated[Path, typer.Option(help="JSONL: query, ground_truth or check, task_key.")],
    playbook: Annotated[str, typer.Option(help="Name of the playbook.")] = "replay",
    playbook_file: Annotated[
        Path | None, typer.Option(help="Replace the playbook by this file first.")
    ] = None,
    learn: Annotated[float, typer.Option(min=0, max=0.9, help="Share of tasks to learn from.")] = 0,
    repeats: Annotated[
        int, typer.Option(min=1, help="Answers per task, with and without the playbook.")
    ] = 1,
    at_once: Annotated[int, typer.Option(min=1, help="Tasks asked at the same time.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the order.")] = 1,
    answer: Annotated[
        str | None, typer.Option(help="Regular expression that finds the answer in a longer text.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            help="Command that scores an answer: JSON on standard input, exit code 0 if correct."
        ),
    ] = None,
    url: Annotated[str | None, typer.Option(help="URL of a running service.")] = None,
    api_key: Annotated[str | None, typer.Option(help="API key of that service.")] = None,
    project: Annotated[str | None, typer.Option(help="Project of the playbook.")] = None,
) -> None:
    try:
        learned, measured = split(read_tasks(tasks), learn, seed)
        with ExitStack() as stack:
            if url is None:
                url, api_key = stack.enter_context(own_service())
            client = stack.enter_context(Hansei(url, api_key, timeout=600))
            if playbook_file is not None:
                import_playbook(client, playbook, project, playbook_file)
            pattern = re.compile(answer) if answer else None
            replay = Replay(client, playbook, project, pattern, check, at_once, seed)
            _run(replay, learned, measured, repeats)
    except Unfit as error:
        raise typer.BadParameter(str(error)) from error


def _run(replay: Replay, learned: Sequence[Task], measured: Sequence[Task], repeats: int) -> None:
    keys = {task.key for task in measured}
    report = Report(
        "replay",
        f"Playbook {replay.playbook!r}: {len(keys)} tasks measured, {repeats} × each way, seed "
        f"{replay.seed}. Interval: Agresti & Min 2005 for matched pairs, over tasks.",
    )
    known = replay.count_known_tasks(measured)
    if learned:
        done = replay.learn(learned)
        report.table("learned", "Learned from first", "tasks", "with an outcome", "bullets changed",
                     "runs that failed", "tokens of learning")  # fmt: skip
        report.row(
            "learned", done.tasks, done.with_outcome, done.changes, len(done.failed), done.tokens
        )
    if known:
        report.table("known", "Not held out", "tasks with an outcome that was recorded earlier")
        report.row("known", known)
    report_results(report, *replay.measure(measured, repeats))
    report.finish(write=False)


if __name__ == "__main__":
    typer.run(main)
