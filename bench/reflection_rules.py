"""The rules engine over real traces: how much it says, how particular, how fast, and whom it
blames.

    python -m bench.reflection_rules [traces.jsonl] [--show N]

Blame is judged on traces whose data names the guilty step without our engine:

- `actions`  failed runs with a list of right actions: the first accepted changing call that is not,
             with exactly these arguments, on the list. Runs that only left something out have no
             such call and are not judged.
- `answer`   runs whose environment said that the answer is wrong: the answering call.
- `halted`   runs cut off without an answer: the first call that failed or repeated an earlier one.

A guess hits when it names the labelled call itself ("exact"), or that call or its response
("step"). "ours" is given ground truth and earlier attempts, so on `actions` it reads the same list
the label comes from; "ours, blind" sees the events and the outcome alone and is the fair figure.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from apps.memory_api.reflection.rules import Attempt, reflect
from apps.memory_api.reflection.schemas import ReflectionContext, ReflectionResult
from apps.memory_api.traces.schemas import Event, OutcomeType

DEFAULT = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "traces.jsonl"
Raw = dict[str, Any]
_READS = ("get", "find", "search", "list", "calculate", "think")


@dataclass(frozen=True)
class Case:
    """A trace as stored, as the engine sees it, and the earlier attempts of its task."""

    raw: Raw
    context: ReflectionContext
    attempts: tuple[Attempt, ...]

    def reflect(self, *, blind: bool = False) -> ReflectionResult | None:
        """`blind`: without ground truth and without earlier attempts."""
        if blind:
            return reflect(self.context)
        return reflect(
            self.context, attempts=self.attempts, ground_truth=self.raw.get("ground_truth")
        )


def load(path: Path) -> list[Case]:
    """The cases of a file, attempts of a task in file order."""
    earlier: dict[str, list[Attempt]] = defaultdict(list)
    cases: list[Case] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        raw: Raw = json.loads(line)
        context = ReflectionContext(
            events=[Event.model_validate(e) for e in raw["events"]],
            outcome=OutcomeType(raw["outcome"]),
            tenant_id="bench",
            task_description=raw.get("task_description"),
            task_goal=raw.get("task_goal"),
        )
        group = raw.get("group") or raw["id"]
        cases.append(Case(raw, context, tuple(earlier[group])))
        earlier[group].append(Attempt(context.outcome, context.events, raw["id"], True))
    return cases


def masked(text: str, *, strict: bool = False) -> str:
    """The text without what is particular by name: quotes and names become X, digits 0.

    `strict` also hides call arguments in brackets, words with _ or digits, and the sentence that
    quotes the task."""
    if strict:
        text = re.sub(r"^Asked: .*?[.?!…](?= [A-Z]|$)|^依頼は「.*?」。", "T", text)
        text = re.sub(r"\[[^\[\]]*\]|\([^()]*\)|（[^（）]*）", "X", text)
        text = re.sub(r"\b\w*[_\d]\w*\b", "X", text)
    text = re.sub(r"“[^”]*”|\"[^\"]*\"|「[^」]*」|`[^`]*`|(?<!\w)'[^'\n]*'(?!\w)", "X", text)
    text = re.sub(r"\d+", "0", text)
    text = re.sub(r"(?:#|\b)[A-Z][\w'’.&\-]*(?<![.])", "X", text)
    return re.sub(r"X(?:[ ,]+X)+", "X", text)


def label(raw: Raw) -> tuple[str, int] | None:
    """Kind and position of the guilty call, from the data alone."""
    if raw["outcome"] == "success":
        return None
    events: list[Raw] = raw["events"]
    truth: Raw = raw.get("ground_truth") or {}
    if raw["outcome"] == "failure" and "actions" in truth:
        at = _first_departure(events, truth["actions"])
        return None if at is None else ("actions", at)
    if (
        events[-1]["event_type"] == "tool_response"
        and events[-1]["content"] == "Answer is INCORRECT"
    ):
        return "answer", len(events) - 2
    if raw["outcome"] == "timeout":
        at = _first_fruitless(events)
        return None if at is None else ("halted", at)
    return None


def _first_departure(events: list[Raw], actions: list[Raw]) -> int | None:
    left = [(a["name"], _canonical(a["kwargs"])) for a in actions]
    for at, event in enumerate(events[:-1]):
        name = event.get("tool_name") or ""
        if event["event_type"] != "tool_call" or name.startswith(_READS):
            continue
        response = events[at + 1]
        if response.get("error") or response["content"].startswith("Error"):
            continue
        call = (name, _canonical(_parsed(event["content"])))
        if call not in left:
            return at
        left.remove(call)
    return None


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return ast.literal_eval(content)


def _canonical(value: Any) -> str:
    if isinstance(value, dict):
        items = sorted(cast(Raw, value).items())
        return "{" + ",".join(f"{k}:{_canonical(v)}" for k, v in items) + "}"
    if isinstance(value, str) and value[:1] == "[":
        value = ast.literal_eval(value)
    if isinstance(value, list):
        return "[" + ",".join(sorted(_canonical(v) for v in cast(list[Any], value))) + "]"
    return str(value)


def _first_fruitless(events: list[Raw]) -> int | None:
    seen: set[str] = set()
    for at, event in enumerate(events[:-1]):
        if event["event_type"] != "tool_call":
            continue
        response = events[at + 1]
        if response.get("error") or response["content"] == "No Results" or event["content"] in seen:
            return at
        seen.add(event["content"])
    return None


def _guesses(raw: Raw) -> dict[str, int]:
    """Positions the three simple rules name (-1: they name none)."""
    events: list[Raw] = raw["events"]

    def first(test: Callable[[Raw], object]) -> int:
        return next((n for n, e in enumerate(events) if test(e)), -1)

    return {
        "last event": len(events) - 1,
        "first error": first(lambda e: e.get("error")),
        "first model step": first(lambda e: e["event_type"] in ("llm_call", "llm_response")),
    }


def _positions(case: Case, result: ReflectionResult | None) -> int:
    ids = [e.event_id or f"e{n:04d}" for n, e in enumerate(case.context.events)]
    first = result.source_event_ids[0] if result and result.source_event_ids else None
    return ids.index(first) if first in ids else -1


def blame(cases: list[Case]) -> Iterator[tuple[str, str, int, int, int]]:
    """Rows (label kind, guesser, exact hits, step hits, judged)."""
    hits: Counter[tuple[str, str, str]] = Counter()
    judged: Counter[str] = Counter()
    for case in cases:
        found = label(case.raw)
        if found is None:
            continue
        kind, at = found
        judged[kind] += 1
        guesses = _guesses(case.raw) | {
            "ours": _positions(case, case.reflect()),
            "ours, blind": _positions(case, case.reflect(blind=True)),
        }
        for name, guess in guesses.items():
            hits[kind, name, "exact"] += guess == at
            hits[kind, name, "step"] += guess in (at, at + 1)
    for kind, total in judged.items():
        for name in ("ours", "ours, blind", "last event", "first error", "first model step"):
            yield kind, name, hits[kind, name, "exact"], hits[kind, name, "step"], total


def _summary(cases: list[Case], results: list[ReflectionResult | None], ms: float) -> Table:
    kept = [r for r in results if r]
    texts = [r.reflection_text for r in kept]
    strategies = [r.strategy_text for r in kept if r.strategy_text]
    table = Table("figure", "value", title=f"{len(cases)} traces")
    rows = {
        "reflections, strategies, none": f"{len(kept)} / {len(strategies)} / {results.count(None)}",
        "distinct texts": _share(texts),
        "distinct after names and numbers are masked": _share([masked(t) for t in texts]),
        "  with task and arguments masked too": _share([masked(t, strict=True) for t in texts]),
        "distinct strategies": _share(strategies),
        "distinct importance values": str(len({r.importance for r in kept})),
        "distinct confidence values": str(len({r.confidence for r in kept})),
        "characters, mean": f"{statistics.mean(map(len, texts)):.0f}",
        "characters, longest": str(max(map(len, texts))),
        "mean ms per trace": f"{ms:.2f}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _share(texts: list[str]) -> str:
    return f"{len(set(texts))} of {len(texts)} ({100 * len(set(texts)) / max(1, len(texts)):.1f} %)"


def _twins(cases: list[Case], results: list[ReflectionResult | None]) -> int:
    """Traces that only repeat an earlier one call for call: their reflections may well be the
    same."""
    runs = Counter(
        json.dumps([raw["group"], raw["outcome"], [e["content"] for e in raw["events"]]])
        for raw in (c.raw for c, r in zip(cases, results, strict=True) if r)
    )
    return sum(n - 1 for n in runs.values())


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--show", type=int, default=0, help="print every Nth reflection too")
    options = parser.parse_args()
    console = Console()
    cases = load(options.path)
    start = time.perf_counter()
    results = [case.reflect() for case in cases]
    ms = (time.perf_counter() - start) * 1000 / max(1, len(cases))
    console.print(_summary(cases, results, ms))
    console.print(f"traces that repeat an earlier one event for event: {_twins(cases, results)}")
    table = Table("label", "guess", "exact", "step", title="first source event against the label")
    for kind, name, exact, step, total in blame(cases):
        table.add_row(kind, name, f"{exact} / {total}", f"{step} / {total}")
    console.print(table)
    for case, result in list(zip(cases, results, strict=True))[:: options.show or len(cases) + 1]:
        if options.show:
            console.print(f"\n{case.raw['id']} ({case.raw['outcome']})", style="bold")
            console.print(result.reflection_text if result else "(nothing to learn)", markup=False)
            console.print(f"→ {result.strategy_text if result else None}", markup=False)


if __name__ == "__main__":
    main()
