"""The rules engine on real traces: how often it produces text, how much of it is false, how fast it
is, what holds without the vocabulary of a source, and whether it blames the correct step.

    python -m bench rules [traces.jsonl] [--show N]

False statements are those that `bench/statements.py` contradicts from the recorded events.
"Without" repeats the runs of a source without the vocabularies that were written on it. A run in
which nothing was found names no event.

Blame is measured on traces whose data identifies the faulty step independently of the engine:

- `actions`  failed runs with a list of correct actions: the first accepted modifying call that is
             not on the list with exactly these arguments. Runs that only omitted an action have no
             such call and are not measured.
- `answer`   runs whose environment reports a wrong answer: the answering call.
- `halted`   runs that were cut off without an answer: the first call that failed or repeated an
             earlier call.

A guess is correct if it names the labeled call ("exact"), or this call or its response ("step").
"ours" gets the ground truth and earlier attempts, so on `actions` it uses the same list as the
label. "ours, blind" gets only the events and the outcome and is the fair figure.
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

from bench.report import Report
from bench.statements import Statement, check_statements
from memory_api.reflection.rules.reflect import reflect
from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.context import Attempt, ReflectionContext
from memory_api.traces.schemas import Event, OutcomeType

DEFAULT = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "traces.jsonl"
Raw = dict[str, Any]
_READS = ("get", "find", "search", "list", "calculate", "think")


@dataclass(frozen=True)
class Case:
    """A trace as stored, as the engine sees it, and the earlier attempts of its task."""

    raw: Raw
    context: ReflectionContext
    attempts: tuple[Attempt, ...]

    def reflect(
        self, *, blind: bool = False, without_dataset: str | None = None
    ) -> ReflectionResult | None:
        """`blind`: without ground truth and without earlier attempts."""
        if blind:
            return reflect(self.context, without_dataset=without_dataset)
        return reflect(
            self.context,
            attempts=self.attempts,
            ground_truth=self.raw.get("ground_truth"),
            without_dataset=without_dataset,
        )

    def statements(self, result: ReflectionResult) -> list[Statement]:
        """What the reflection and the strategy state, checked against the trace."""
        earlier = [event.content for attempt in self.attempts for event in attempt.events]
        return list(check_statements(result.reflection_text, self.raw, earlier))


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
    """The text without what is particular by name: names and short quotations become X, digits 0.
    Calls and quotations of more than 60 characters stay.

    `strict` also hides call arguments in brackets, words with _ or digits, and the task."""
    text = text.replace("`", "")
    if strict:
        text = re.sub(r"^Task: .*?(?= Outcome: )|^タスク：.*?(?=結果：)", "T", text)
        text = re.sub(r"\[[^\[\]]*\]|\([^()]*\)|（[^（）]*）", "X", text)
        text = re.sub(r"\b\w*[_\d]\w*\b", "X", text)
    text = re.sub(r"“[^”]{0,60}”|\"[^\"]*\"|「[^」]{0,60}」|(?<!\w)'[^'\n]*'(?!\w)", "X", text)
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


def _share(texts: list[str]) -> str:
    return f"{len(set(texts))} of {len(texts)} ({100 * len(set(texts)) / max(1, len(texts)):.1f} %)"


def _add_summary(
    report: Report, cases: list[Case], results: list[ReflectionResult | None], ms: float
) -> None:
    found = [r for r in results if r]
    texts = [r.reflection_text for r in found]
    strategies = [r.strategy_text for r in found if r.strategy_text]
    report.table("summary", f"{len(cases)} traces", "figure", "value")
    rows = {
        "reflections, strategies, nothing found": (
            f"{len(found)} / {len(strategies)} / {results.count(None)}"
        ),
        "distinct texts": _share(texts),
        "distinct after names and numbers are masked": _share([masked(t) for t in texts]),
        "  with task and arguments masked too": _share([masked(t, strict=True) for t in texts]),
        "distinct strategies": _share(strategies),
        "distinct importance values": len({r.importance for r in found}),
        "distinct confidence values": len({r.confidence for r in found}),
        "characters, mean": f"{statistics.mean(map(len, texts)):.0f}",
        "characters, longest": max(map(len, texts)),
        "mean ms per trace (CPU)": f"{ms:.2f}",
    }
    for name, value in rows.items():
        report.row("summary", name, value)


def _check(case: Case, result: ReflectionResult | None) -> list[Statement]:
    return case.statements(result) if result else []


def _add_sources(report: Report, cases: list[Case], results: list[ReflectionResult | None]) -> None:
    """Each source with all vocabularies, and without those written on it."""
    columns = ("source", "traces", "vocabularies", "reflections", "strategies")
    report.table(
        "sources",
        "Leave one source out",
        *columns,
        "same reflection",
        "statements checked",
        "false",
        "blame, blind",
    )
    by_source: dict[str, list[int]] = defaultdict(list)
    for n, case in enumerate(cases):
        by_source[case.raw["source"]].append(n)
    for source, numbers in by_source.items():
        chosen = [cases[n] for n in numbers]
        with_all = [results[n] for n in numbers]
        without = [case.reflect(without_dataset=source) for case in chosen]
        same = sum(
            (a and a.reflection_text) == (b and b.reflection_text)
            for a, b in zip(with_all, without, strict=True)
        )
        for name, given, unchanged, left_out in (
            ("all", with_all, len(chosen), None),
            ("without", without, same, source),
        ):
            statements = [s for c, r in zip(chosen, given, strict=True) for s in _check(c, r)]
            labeled = [(c, found[1]) for c in chosen if (found := label(c.raw))]
            hits = sum(
                _positions(c, c.reflect(blind=True, without_dataset=left_out)) == at
                for c, at in labeled
            )
            report.row(
                "sources",
                source,
                len(chosen),
                name,
                sum(r is not None for r in given),
                sum(r is not None and r.strategy_text is not None for r in given),
                unchanged,
                len(statements),
                sum(not s.is_true for s in statements),
                f"{hits} / {len(labeled)}" if labeled else "",
            )


def _add_statements(
    report: Report, cases: list[Case], results: list[ReflectionResult | None]
) -> None:
    report.table("statements", "Statements by kind", "kind", "checked", "false")
    checked: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for case, result in zip(cases, results, strict=True):
        for statement in _check(case, result):
            checked[statement.kind] += 1
            false[statement.kind] += not statement.is_true
            if not statement.is_true:
                print(f"false: {case.raw['id']}: {statement.kind}: {statement.text}")
    for kind, count in checked.most_common():
        report.row("statements", kind, count, false[kind])


def blamed_ranks(folder: Path) -> Iterator[tuple[str, int | None, bool]]:
    """Of labeled runs (`blamed` is an event ID) in JSON files: the file, the rank of the label
    among `source_event_ids` (None if it is not there), and whether it is the first model step.
    """
    for path in sorted(folder.glob("*.json")):
        raw: Raw = json.loads(path.read_text(encoding="utf-8"))
        context = ReflectionContext(
            events=[Event.model_validate(e) for e in raw["events"]],
            outcome=OutcomeType(raw["outcome"]),
            tenant_id="bench",
            task_description=raw.get("task_description"),
        )
        result = reflect(context, ground_truth=raw.get("ground_truth"))
        ids = result.source_event_ids if result else []
        blamed = raw["blamed"]
        first = _guesses(raw)["first model step"]
        rank = ids.index(blamed) + 1 if blamed in ids else None
        yield path.name, rank, raw["events"][first]["event_id"] == blamed


def _add_blamed(report: Report, folder: Path) -> None:
    rows = list(blamed_ranks(folder))
    report.table("blamed", "Labeled runs of several agents", "guess", "correct", "runs")
    for name, most in (("first source event", 1), ("first three", 3), ("first five", 5)):
        hits = sum(rank is not None and rank <= most for _, rank, _ in rows)
        report.row("blamed", name, hits, len(rows))
    report.row("blamed", "first model step", sum(first for *_, first in rows), len(rows))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--show", type=int, default=0, help="print every Nth reflection too")
    parser.add_argument("--blamed", type=Path, help="a folder of labeled runs of several agents")
    options = parser.parse_args()
    report = Report("rules", "The rules engine on the traces of `../shared/data`, without a model.")
    if options.blamed:
        _add_blamed(report, options.blamed)
        report.finish(write=False)
        return
    cases = load(options.path)
    start = time.process_time()
    results = [case.reflect() for case in cases]
    ms = (time.process_time() - start) * 1000 / max(1, len(cases))
    _add_summary(report, cases, results, ms)
    _add_sources(report, cases, results)
    _add_statements(report, cases, results)
    title = "First source event against the label"
    report.table("blame", title, "label", "guess", "exact", "step")
    for kind, name, exact, step, total in blame(cases):
        report.row("blame", kind, name, f"{exact} / {total}", f"{step} / {total}")
    report.finish(write=options.path == DEFAULT)
    for case, result in list(zip(cases, results, strict=True))[:: options.show or len(cases) + 1]:
        if options.show:
            print(f"\n{case.raw['id']} ({case.raw['outcome']})")
            print(result.reflection_text if result else "(nothing found)")
            print(f"→ {result.strategy_text if result else None}")


if __name__ == "__main__":
    main()
