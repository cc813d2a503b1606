"""The rules engine on real traces: how often it tells something, how many facts of each kind it
states, how many of them the recorded events contradict, and how fast it is.

False facts are those that `bench/statements.py` contradicts from the recorded events, by its own
definition of each kind.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.data import SHARED, to_event
from bench.harness import Report
from bench.statements import Statement, check_facts
from memory_api.reflection.rules import reflect_by_rules
from memory_api.reflection.schemas import ReflectionResult
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.trace_analysis.attempts import Attempt
from memory_api.trace_analysis.facts import Fact
from memory_api.traces.schemas import Event, OutcomeType

DEFAULT = SHARED / "traces.jsonl"
Raw = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A trace as stored, as the engine sees it, and the earlier attempts of its task."""

    raw: Raw
    context: ReflectionContext
    attempts: tuple[Attempt, ...]
    earlier: tuple[Raw, ...]

    def facts(self) -> list[Fact]:
        return analyze_trace(
            self.context, attempts=self.attempts, ground_truth=self.raw.get("ground_truth")
        )

    def reflect(self) -> ReflectionResult | None:
        return reflect_by_rules(self.context, self.facts())

    def statements(self) -> list[Statement]:
        """What the facts state, checked against the trace and the earlier attempts."""
        return list(check_facts(self.facts(), self.raw, self.earlier))


def load(path: Path) -> list[Case]:
    """The cases of a file, attempts of a task in file order."""
    earlier: dict[str, list[tuple[Attempt, Raw]]] = defaultdict(list)
    cases: list[Case] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        raw: Raw = json.loads(line)
        context = ReflectionContext(
            events=[Event.model_validate(to_event(e)) for e in raw["events"]],
            outcome=OutcomeType(raw["outcome"]),
            tenant_id="bench",
            task_description=raw.get("task_description"),
            task_goal=raw.get("task_goal"),
        )
        group = earlier[raw.get("group") or raw["id"]]
        attempts = tuple(attempt for attempt, _ in group)
        cases.append(Case(raw, context, attempts, tuple(other for _, other in group)))
        group.append((Attempt(context.outcome, context.events), raw))
    return cases


def _add_summary(report: Report, results: list[ReflectionResult | None], ms: float) -> None:
    found = [r for r in results if r]
    texts = [r.reflection_text for r in found]
    report.table("summary", f"{len(results)} traces", "figure", "value")
    report.row("summary", "reflections", len(found))
    report.row("summary", "distinct reflections", len(set(texts)))
    report.row("summary", "strategies", sum(len(r.rules) for r in found))
    report.row("summary", "characters, mean", f"{statistics.mean(map(len, texts)):.0f}")
    report.row("summary", "characters, longest", max(map(len, texts)))
    report.row("summary", "mean ms per trace (CPU)", f"{ms:.2f}")


def _add_sources(report: Report, cases: list[Case], results: list[ReflectionResult | None]) -> None:
    report.table("sources", "By source", "source", "traces", "reflections", "with a strategy")
    by_source: dict[str, list[ReflectionResult | None]] = defaultdict(list)
    for case, result in zip(cases, results, strict=True):
        by_source[case.raw["source"]].append(result)
    for source, given in by_source.items():
        found = [r for r in given if r]
        report.row("sources", source, len(given), len(found), sum(bool(r.rules) for r in found))


def _add_statements(report: Report, cases: list[Case]) -> None:
    report.table("statements", "Statements by kind of fact", "kind", "checked", "false")
    checked: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for case in cases:
        for statement in case.statements():
            checked[statement.kind] += 1
            false[statement.kind] += not statement.is_true
            if not statement.is_true:
                print(f"false: {case.raw['id']}: {statement.kind}: {statement.text}")
    for kind, count in checked.most_common():
        report.row("statements", kind, count, false[kind])


def main() -> None:
    report = Report("rules", "The rules engine on the traces of `../shared/data`, without a model.")
    cases = load(DEFAULT)
    start = time.process_time()
    results = [case.reflect() for case in cases]
    ms = (time.process_time() - start) * 1000 / len(cases)
    _add_summary(report, results, ms)
    _add_sources(report, cases, results)
    _add_statements(report, cases)
    report.finish()


if __name__ == "__main__":
    main()
