"""`python -m house_rules COMMAND`: write tasks, be the agent, score answers, or run all of it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .domain import DOMAINS
from .episode import Episode, score_answer
from .model import Model, ModelError, run_task
from .tasks import FEEDBACK, VARIANTS, Task, benchmark, find_task, reveal

EPILOG = "The README of this folder describes the files and shows the commands."


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return COMMANDS[options.command](options)
    except (ValueError, OSError, ModelError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("house_rules", description=__doc__, epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks", help="write a task file for `hansei eval`")
    conventions = commands.add_parser("reveal", help="print the hidden conventions of a seed")
    for each in (tasks, conventions):
        each.add_argument("--seed", type=int, required=True)
        each.add_argument("--domain", choices=sorted(DOMAINS), required=True)
        each.add_argument("--variant", choices=sorted(VARIANTS), default="plain")
    tasks.add_argument("--train", type=int, default=60, help="tasks of the stream (60)")
    tasks.add_argument("--test", type=int, default=60, help="held-out tasks (60)")
    agent = commands.add_parser("agent", help="do the task on standard input with a model")
    score = commands.add_parser("score", help="score the answer on standard input")
    run = commands.add_parser("run", help="do all tasks of a file with a model and score them")
    for each in (agent, run):
        each.add_argument("--model", required=True, help="`{arm}` in it becomes the arm")
        each.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
        each.add_argument("--timeout", type=float, default=600.0, help="seconds for a reply (600)")
    for each in (score, run):
        each.add_argument("--feedback", choices=FEEDBACK, default="error")
    run.add_argument("--tasks", type=Path, required=True)
    run.add_argument("--output", type=Path, required=True, help="JSON lines; done tasks stay")
    run.add_argument("--advice", type=Path, help="a text for every prompt")
    run.add_argument("--parallel", type=int, default=4)
    return parser


def write_tasks(options: argparse.Namespace) -> int:
    if options.train < 0 or options.test < 0 or options.train + options.test == 0:
        raise ValueError("--train and --test are numbers of tasks, at least 1 together.")
    found = benchmark(options.domain, options.variant, options.seed)
    for index, task in enumerate(found.take(options.train + options.test)):
        split = "stream" if index < options.train else "held_out"
        sys.stdout.write(json.dumps(to_line(task, split)) + "\n")
    return 0


def to_line(task: Task, split: str) -> dict[str, Any]:
    """A line of a task file. `solution` is for arms that show right answers."""
    found, _ = find_task(task.id)
    return {
        "id": task.id,
        "task": task.text,
        "solution": found.score(task, []).right_calls,
        "control": task.is_control,
        "split": split,
        "metadata": {"conventions": [f"{c.kind}:{c.tool}" for c in task.touched]},
    }


def print_conventions(options: argparse.Namespace) -> int:
    found = benchmark(options.domain, options.variant, options.seed)
    sys.stdout.write("".join(f"{line}\n" for line in reveal(found)))
    return 0


def answer(options: argparse.Namespace) -> int:
    """Read one JSON document with `task_id`, `advice` and `arm`; print the answer."""
    request = json.load(sys.stdin)
    advice, arm = request.get("advice") or "", request.get("arm") or ""
    document = run_task(_model(options), Episode(request["task_id"]), advice, arm)
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def _model(options: argparse.Namespace) -> Model:
    if not options.base_url:
        raise ValueError("Pass --base-url or set OPENAI_BASE_URL, for example http://host/v1.")
    return Model(options.model, options.base_url, options.timeout)


def score(options: argparse.Namespace) -> int:
    """Read one JSON document with `task_id` and `answer`; print the score and the feedback."""
    request = json.load(sys.stdin)
    if not isinstance(request, dict) or not {"task_id", "answer"} <= request.keys():
        raise ValueError("The document on standard input needs `task_id` and `answer`.")
    sys.stdout.write(json.dumps(scored(request, options.feedback)) + "\n")
    return 0


def scored(answered: dict[str, Any], feedback: str) -> dict[str, Any]:
    result = score_answer(answered["task_id"], answered["answer"])
    return {
        "score": float(result.is_right),
        "feedback": result.feedback(feedback),
        "ignored": [f"{c.kind}:{c.tool}" for c in result.ignored],
    }


def run(options: argparse.Namespace) -> int:
    model = _model(options)
    advice = options.advice.read_text(encoding="utf8") if options.advice else ""
    lines = [json.loads(line) for line in options.tasks.read_text(encoding="utf8").splitlines()]
    done = {record["task_id"]: record for record in _records(options.output)}
    open_ = [line["id"] for line in lines if line["id"] not in done]
    with (
        options.output.open("a", encoding="utf8") as file,
        ThreadPoolExecutor(options.parallel) as pool,
    ):
        for document in pool.map(
            lambda task_id: run_task(model, Episode(task_id), advice, "run"), open_
        ):
            document |= scored(document, options.feedback)
            done[document["task_id"]] = document
            file.write(json.dumps(document) + "\n")
            file.flush()
    for control in (False, True):
        scores = [
            done[line["id"]]["score"] for line in lines if bool(line.get("control")) is control
        ]
        name = "controls" if control else "tasks with conventions"
        sys.stdout.write(f"{name}: {sum(scores):.0f} of {len(scores)} right\n")
    ignored = Counter(kind for line in lines for kind in done[line["id"]]["ignored"])
    for name, count in ignored.most_common():
        sys.stdout.write(f"ignored {count} times: {name}\n")
    return 0


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf8").splitlines())


COMMANDS = {
    "tasks": write_tasks,
    "reveal": print_conventions,
    "agent": answer,
    "score": score,
    "run": run,
}

if __name__ == "__main__":
    sys.exit(main())
