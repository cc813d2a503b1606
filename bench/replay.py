"""Does a playbook help? `python -m bench replay --tasks FILE`: tasks of your own, with it and
without.

    OPENAI_API_KEY=… python -m bench replay --tasks mine.jsonl --playbook-file playbook.json
    python -m bench replay --tasks mine.jsonl --playbook support --url http://… --api-key …
    python -m bench replay --tasks mine.jsonl --learn 0.5

Each task is answered by the service (POST /workflow/run) with the playbook and with an empty one,
in an order drawn by lot, `--repeats` times, and scored: against `ground_truth` as text, number or
code, by the regular expression `check`, or by a command of yours (`--check`). With `--learn` the
playbook first learns from the outcomes of that share of the tasks, and only the others are
measured: tasks of one `task_key` never fall on both sides.

Without `--url` it brings a service of its own, which is asked with the provider that the
environment names (docs/configuration.md) and is gone afterwards.
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
from bench.server import api, measured_server, worker
from bench.tables import Report
from hansei import Hansei
from hansei.request import API, Request

WITHOUT = "replay-without-a-playbook"
"""A playbook that nobody has, so that the same prompt is asked with nothing in it."""


@dataclass(frozen=True)
class Answered:
    """One answer and what it took. `score` 0 to 1, None when nobody can tell."""

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
    """How tasks are put to a service. `client` may be used by several threads."""

    client: Hansei
    playbook: str
    project: str | None = None
    pattern: re.Pattern[str] | None = None
    command: str | None = None
    at_once: int = 4
    seed: int = 1

    def ask(self, task: Task, playbook: str) -> Answered:
        """Answer a task once, and score it. Raises `Unfit` when no model is there to answer."""
        said = self.client.run_workflow(
            task.query, playbook, project_id=self.project, task_key=task.key
        )
        if said["engine"] != "llm" and not said["degraded"]:
            raise Unfit("The service has no model: see HANSEI_LLM_PROVIDER.")
        used = self.client.run(said["run_id"])["usage"] or {}
        text = without_citations(said["llm_response"], said["shown_keys"])
        return Answered(
            task=task,
            text=text,
            score=None if said["degraded"] else self.score(task, text),
            trace_id=said["trace_id"],
            shown=said["search_results_count"],
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
        """Each task with the playbook and without it, `repeats` times; which comes first is drawn
        by lot. Raises `Unfit` when the empty playbook is not empty.
        """
        lot = random.Random(self.seed)
        jobs = [(task, lot.random() < 0.5) for task in tasks for _ in range(repeats)]
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

    def learn(self, tasks: Sequence[Task]) -> Taught:
        """Answer each task with the playbook, tell how it turned out, and wait until that is learnt
        from.
        """
        with ThreadPoolExecutor(self.at_once) as pool:
            told = list(pool.map(self._teach, tasks))
        return Taught(
            tasks=len(tasks),
            told=sum(1 for steps in told if steps),
            changes=sum(len(s["result"]["changes"]) for steps in told for s in steps
                        if s["kind"] == "merge" and s["state"] == "done"),
            failed=[s for steps in told for s in steps if s["state"] != "done"],
            tokens=sum(_tokens(s["usage"]) for steps in told for s in steps),
        )  # fmt: skip

    def _teach(self, task: Task) -> list[Any]:
        done = self.ask(task, self.playbook)
        if done.score is None:
            return []
        outcome = {RIGHT: "success", WRONG: "failure"}.get(done.score, "partial")
        more = {} if task.right is None else {"ground_truth": task.right}
        sent = self.client.tell_outcome(done.trace_id, outcome, **more)
        run_id = sent.get("run_id")
        return list(self.client.steps(run_id, timeout=600)) if run_id else []

    def known(self, tasks: Iterable[Task]) -> int:
        """How many tasks the service has seen the outcome of: what it learnt there is not new to
        it.
        """

        def told(key: str) -> bool:
            seen = self.client.traces(task_key=key, project_id=self.project)
            return any(trace["outcome"] for trace in seen)

        return sum(told(key) for key in {task.key for task in tasks})


@dataclass(frozen=True)
class Taught:
    """What came of learning: `changes` are those of bullets, `failed` the runs that failed."""

    tasks: int
    told: int
    changes: int
    failed: Sequence[Any]
    tokens: int


def _tokens(usage: Mapping[str, Any] | None) -> int:
    return usage["input_tokens"] + usage["output_tokens"] if usage else 0


def without_citations(text: str, keys: Sequence[str]) -> str:
    """An answer without the `[key]` of bullets it was shown: the prompt asks for them, and only the
    side with a playbook can give them.
    """
    if not keys:
        return text
    key = "|".join(map(re.escape, keys))
    return re.sub(rf"\s*\[(?:{key})(?:[,;]\s*(?:{key}))*\]", "", text)


def bring(client: Hansei, name: str, project: str | None, file: Path) -> None:
    """Make the playbook what a file says, in any form that the service reads."""
    params = (("project_id", project),) if project else ()
    headers = {"Content-Type": "application/json"}
    client.answer(Request("PUT", f"{API}/playbooks/{name}", params, file.read_bytes(), headers))


@contextmanager
def own_service() -> Iterator[tuple[str, str]]:
    """A service with a worker and a database of its own; its address and key."""
    with ExitStack() as stack:
        server = stack.enter_context(measured_server())
        port = stack.enter_context(api(server))
        stack.enter_context(worker(server, {}))
        yield f"http://127.0.0.1:{port}", asyncio.run(new_tenant(server, "replay"))


def tell(report: Report, with_: Side, without: Side) -> None:
    """The tables. Raises `Unfit` when nothing could be scored."""
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
        report.table("empty", "Answers with the playbook that it had nothing for", "answers")
        report.row("empty", len(with_.answers) - shown)


def main(
    tasks: Annotated[Path, typer.Option(help="JSONL: query, ground_truth or check, task_key.")],
    playbook: Annotated[str, typer.Option(help="Its name in the service.")] = "replay",
    playbook_file: Annotated[
        Path | None, typer.Option(help="Make it what this file says, before all else.")
    ] = None,
    learn: Annotated[float, typer.Option(min=0, max=0.9, help="Share of tasks to learn from.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Times each task is asked each way.")] = 1,
    at_once: Annotated[int, typer.Option(min=1, help="Tasks asked at the same time.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the split and of what is asked first.")] = 1,
    answer: Annotated[
        str | None, typer.Option(help="Expression that finds the answer in a longer text.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(help="Command that judges: JSON in, exit code 0 is right.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="A service that runs already.")] = None,
    api_key: Annotated[str | None, typer.Option(help="Its key.")] = None,
    project: Annotated[str | None, typer.Option(help="Where the playbook is.")] = None,
) -> None:
    try:
        taught, measured = split(read_tasks(tasks), learn, seed)
        with ExitStack() as stack:
            if url is None:
                url, api_key = stack.enter_context(own_service())
            client = stack.enter_context(Hansei(url, api_key, timeout=600))
            if playbook_file is not None:
                bring(client, playbook, project, playbook_file)
            pattern = re.compile(answer) if answer else None
            replay = Replay(client, playbook, project, pattern, check, at_once, seed)
            _run(replay, taught, measured, repeats)
    except Unfit as error:
        raise typer.BadParameter(str(error)) from error


def _run(replay: Replay, taught: Sequence[Task], measured: Sequence[Task], repeats: int) -> None:
    keys = {task.key for task in measured}
    report = Report(
        "replay",
        f"Playbook {replay.playbook!r}: {len(keys)} tasks measured, {repeats} × each way, seed "
        f"{replay.seed}. Interval: Agresti & Min 2005 for matched pairs, over tasks.",
    )
    known = replay.known(measured)
    if taught:
        done = replay.learn(taught)
        report.table("learnt", "Learnt before", "tasks", "with an outcome", "bullets changed",
                     "runs that failed", "tokens of learning")  # fmt: skip
        report.row("learnt", done.tasks, done.told, done.changes, len(done.failed), done.tokens)
    if known:
        report.table("known", "Not held out", "tasks whose outcome the service was told earlier")
        report.row("known", known)
    tell(report, *replay.measure(measured, repeats))
    report.finish(write=False)


if __name__ == "__main__":
    typer.run(main)
