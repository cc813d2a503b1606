"""`python -m bfcl COMMAND`: write tasks, be the agent, or score answers."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from typing import Any

try:
    from .episode import Episode, right_calls, score_answer, tasks
except ModuleNotFoundError as error:
    sys.exit(
        f"{error}. Install the benchmark: pip install --no-deps bfcl-eval && pip install mpmath"
    )
from house_rules.model import Model, ModelError, run_task


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bfcl", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("tasks", help="write a task file for `hansei eval`")
    write.add_argument("--seed", type=int, default=1)
    write.add_argument("--train", type=int, default=20)
    write.add_argument("--test", type=int, default=40)
    agent = commands.add_parser("agent", help="the agent of `hansei eval`")
    agent.add_argument("--model", required=True, help="may contain {arm}")
    agent.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL"))
    agent.add_argument("--timeout", type=float, default=600.0)
    commands.add_parser("score", help="the scorer of `hansei eval`")
    options = parser.parse_args(arguments)
    try:
        return COMMANDS[options.command](options)
    except (ValueError, KeyError, OSError, ModelError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def write_tasks(options: argparse.Namespace) -> int:
    """A random sample. All are controls: what they need is in the documentation of the tools."""
    chosen = random.Random(options.seed).sample(sorted(tasks()), options.train + options.test)
    for index, task_id in enumerate(chosen):
        requests = [message["content"] for turn in tasks()[task_id]["question"] for message in turn]
        line = {
            "id": task_id,
            "task": "\n".join(requests),
            "solution": right_calls()[task_id],
            "control": True,
            "split": "stream" if index < options.train else "held_out",
        }
        sys.stdout.write(json.dumps(line) + "\n")
    return 0


def answer(options: argparse.Namespace) -> int:
    """Read one JSON document with `task_id`, `advice` and `arm`; print the answer."""
    if not options.base_url:
        raise ValueError("Pass --base-url or set OPENAI_BASE_URL, for example http://host/v1.")
    request = json.load(sys.stdin)
    model = Model(options.model, options.base_url, options.timeout)
    episode = Episode(request["task_id"])
    document = run_task(model, episode, request.get("advice") or "", request.get("arm") or "")
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def score(_: argparse.Namespace) -> int:
    """Read one JSON document with `task_id` and `answer`; print the score and the feedback."""
    request: dict[str, Any] = json.load(sys.stdin)
    is_right, feedback = score_answer(request["task_id"], request["answer"])
    sys.stdout.write(json.dumps({"score": float(is_right), "feedback": feedback}) + "\n")
    return 0


COMMANDS = {"tasks": write_tasks, "agent": answer, "score": score}

if __name__ == "__main__":
    sys.exit(main())
