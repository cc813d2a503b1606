"""The agent of a benchmark: a model that is asked by the chat completions of OpenAI, which most
providers and servers accept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hansei.errors import EvaluationError

RETRIES = 3
BASE_URL = "https://api.openai.com/v1"


class ModelError(EvaluationError):
    """The model cannot be reached, or refused the request."""


@dataclass(frozen=True)
class Model:
    """`name` may contain `{arm}`, which becomes the arm of the evaluation."""

    name: str
    timeout: float = 600.0

    def complete(self, messages: list[dict[str, str]], arm: str = "") -> tuple[str, dict[str, int]]:
        """The reply and its tokens."""
        url = os.environ.get("OPENAI_BASE_URL") or BASE_URL
        body = {"model": self.name.replace("{arm}", arm), "messages": messages}
        request = urllib.request.Request(
            f"{url.rstrip('/')}/chat/completions",
            json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
            },
        )
        document = self._send(request)
        try:
            text = document["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise ModelError(f"{url} returned no reply: {str(document)[:200]}") from None
        usage: dict[str, Any] = document.get("usage") or {}
        tokens = [int(usage.get(f"{part}_tokens", 0)) for part in ("prompt", "completion")]
        return text or "", {"input_tokens": tokens[0], "output_tokens": tokens[1]}

    def _send(self, request: urllib.request.Request) -> Any:
        problem = ""
        for attempt in range(RETRIES):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                problem = f"status {error.code}: {error.read(300).decode(errors='replace')}"
                if error.code not in (429, 500, 502, 503, 504):
                    break
            except (OSError, ValueError) as error:
                problem = str(error)
            time.sleep(2**attempt)
        raise ModelError(f"{request.full_url}: {problem}")


class Episode(Protocol):
    """A run of one task: what to show to the model, and what it did so far."""

    task_id: str
    events: list[dict[str, Any]]

    def prompt(self, advice: str = "") -> list[dict[str, str]]:
        """The messages of the first call."""
        ...

    def say(self, reply: str) -> str | None:
        """Execute a reply. Returns what to show next, or None at the end."""
        ...

    def answer(self) -> str:
        """What the scorer needs."""
        ...

    def tools(self) -> list[dict[str, str]]:
        """The tools, as a trace lists them."""
        ...


def run_task(model: Model, episode: Episode, advice: str = "", arm: str = "") -> dict[str, Any]:
    """Let a model do a task. Returns the document that `hansei eval` expects of an agent."""
    messages = episode.prompt(advice)
    total = {"input_tokens": 0, "output_tokens": 0}
    while True:
        reply, usage = model.complete(messages, arm)
        total = {name: total[name] + usage[name] for name in total}
        results = episode.say(reply)
        if results is None:
            break
        messages += [
            {"role": "assistant", "content": reply},
            {"role": "user", "content": results},
        ]
    return {
        "task_id": episode.task_id,
        "answer": episode.answer(),
        "events": episode.events,
        "tools": episode.tools(),
        "usage": total,
    }


def main(
    start: Callable[[str], Episode], about: str, arguments: Sequence[str] | None = None
) -> int:
    """The command of an agent: reads one JSON document with `task_id`, `advice` and `arm`, and
    prints the answer. `start` begins an episode of a task.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--model", required=True, help="`{arm}` in it becomes the arm")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for a reply (600)")
    options = parser.parse_args(arguments)
    try:
        request: Any = json.load(sys.stdin)
        try:
            episode = start(request["task_id"])
        except (KeyError, TypeError):
            raise ValueError("Standard input must be a JSON object with `task_id`.") from None
        model = Model(options.model, options.timeout)
        answer = run_task(model, episode, request.get("advice") or "", request.get("arm") or "")
    except (ValueError, EvaluationError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0
