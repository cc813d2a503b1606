"""A model for benches: a provider stub that answers after `DELAY`."""

from __future__ import annotations

import itertools
import multiprocessing
import re
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from bench.data import documents
from tests.support.stub_provider import Answer, Call, StubProvider, answer

DELAY = 0.5
"""Response time of the stub, in seconds."""


def asks(url: str) -> dict[str, str]:
    """Settings of a service that asks the stub, once for each trace."""
    return {
        "HANSEI_LLM_PROVIDER": "anthropic",
        "HANSEI_ANTHROPIC_API_KEY": "stub",
        "HANSEI_ANTHROPIC_BASE_URL": url,
        "HANSEI_REFLECTION_BATCH_SIZE": "1",
        "HANSEI_ROUTINE_REFLECTION_SHARE": "1",
    }


@contextmanager
def stub() -> Generator[str]:
    """Run a provider stub in a process of its own and yield its Anthropic URL."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(10)


def _serve(pipe: Connection) -> None:
    with StubProvider(delay=DELAY) as provider:
        provider.behave = ModelStub()
        pipe.send(provider.anthropic_url)
        pipe.recv()


class ModelStub:
    """Answers in the requested format, each time with a different real text as the lesson."""

    def __init__(self) -> None:
        self.lessons = itertools.cycle(documents(5_000, seed=11))

    def __call__(self, call: Call) -> Answer:
        if "root_cause" in (call.schema or {}).get("properties", {}):
            lesson = next(self.lessons)
            return answer(
                {
                    "reflection": f"The run went as it did because of this: {lesson}",
                    "strategy": lesson,
                    "importance": 0.6,
                    "confidence": 0.7,
                    "tags": ["bench"],
                    "source_event_ids": [],
                    "verdicts": [],
                }
            )
        taught = re.findall(r"^(\d+)\. \(\w+\) (.+)$", call.user, re.MULTILINE)
        return answer(
            {
                "reasoning": "They are new.",
                "operations": [
                    {"type": "ADD", "lessons": [int(n)], "content": text, "reasoning": "It is new."}
                    for n, text in taught
                ],
            }
        )
