"""Time of the redaction of secrets, as a multiple of one pass over the words of the text."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import typer

from bench.data import ROOT, real_traces
from bench.harness import Report
from memory_api.core.secret_patterns import SECRET_PATTERNS
from memory_api.core.secret_redaction import redact

WORD = re.compile(r"\w+")
REPEATS = 5
HINTS_SIZE = 1_000_000


def seconds(work: Callable[[], object]) -> float:
    """The shortest processor time of `REPEATS` calls."""
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def inputs() -> dict[str, list[str]]:
    events = [event["content"] for trace in real_traces() for event in trace["events"]]
    with (ROOT / "tests/recordings/curation/recordings.jsonl").open(encoding="utf8") as lines:
        prompts = [str(json.loads(line)["prompt"]) for line in lines]
    hints = " ".join(hint for pattern in SECRET_PATTERNS for hint in pattern.hints)
    return {
        "contents of events of real traces": events,
        "prompts of a reflection or a curation": prompts,
        "only hints of all patterns, 1 MB": [(hints + " ") * (HINTS_SIZE // len(hints))],
    }


def main() -> None:
    report = Report(
        "redaction",
        "Processor time of `redact`, and of one pass that counts the words of the same texts, the"
        " least that a program in Python can do with each word.",
    )
    report.table("text", "Redaction", "texts", "count, MB", "ms per MB", "one pass", "ratio")
    for name, texts in inputs().items():
        size = sum(map(len, texts)) / 1e6
        taken = seconds(lambda texts=texts: [redact(text) for text in texts])
        floor = seconds(lambda texts=texts: [sum(1 for _ in WORD.finditer(t)) for t in texts])
        cells = f"{taken / size * 1e3:.0f}", f"{floor / size * 1e3:.0f}", f"{taken / floor:.1f}"
        report.row("text", name, f"{len(texts):,}, {size:.1f}", *cells)
    report.finish()


if __name__ == "__main__":
    typer.run(main)
