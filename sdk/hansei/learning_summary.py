"""The summary of what the service learned from many traces: counts, errors and lessons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from hansei._flows import ImportedTrace
from hansei._model import Json
from hansei.models import GenerateReflectionResponse, Run
from hansei.nothing_learned import why_run_found_nothing


@dataclass
class LearnedReflection:
    """A reflection with its strategy, and the positions of the traces that taught it."""

    response: GenerateReflectionResponse
    lines: list[int]

    @property
    def importance(self) -> float:
        return self.response.importance or 0.0


@dataclass(frozen=True)
class BulletChange:
    """A change of one bullet. `line` is the position of the trace that caused it."""

    playbook: str
    action: str
    key: str | None
    content: str
    reason: str
    line: int


@dataclass
class LearningSummary:
    """Add the receipts of `client.traces.create_many`, then the runs that learned from them."""

    new_traces: int = 0
    duplicates: int = 0
    rejected: list[ImportedTrace] = field(default_factory=list[ImportedTrace])
    queued_run_ids: set[str] = field(default_factory=set[str])
    duplicate_run_ids: set[str] = field(default_factory=set[str])
    """Runs of duplicate traces. They may be unfinished."""
    nothing_found: int = 0
    why_nothing: Counter[str] = field(default_factory=Counter[str])
    """Sentences that say why a trace has no lesson → number of traces."""
    known_reflections: int = 0
    """Traces whose reflection was already known."""
    known_strategies: int = 0
    """How often a trace taught a strategy that was already known."""
    degraded: int = 0
    not_reflected: int = 0
    """Traces whose evaluation decided against a reflection."""
    resent: int = 0
    """Duplicate traces without an `external_id`, detected by their content."""
    verdicts: Counter[str] = field(default_factory=Counter[str])
    """Number of verdicts by tag."""
    changes: list[BulletChange] = field(default_factory=list["BulletChange"])
    proposals: int = 0
    failed: list[Run] = field(default_factory=list[Run])
    _reflection_ids: set[str] = field(default_factory=set[str])
    _strategy_ids: set[str] = field(default_factory=set[str])
    _lessons: dict[str, LearnedReflection] = field(default_factory=dict[str, LearnedReflection])
    _line_by_trace: dict[str, int] = field(default_factory=dict[str, int])

    def add_receipt(self, receipt: ImportedTrace) -> None:
        if receipt.error is not None or receipt.trace_id is None:
            self.rejected.append(receipt)
            return
        self._line_by_trace[receipt.trace_id] = receipt.line or 0
        run_id = receipt.run_id
        if receipt.duplicate:
            self.duplicates += 1
            self.duplicate_run_ids |= {run_id} if run_id else set()
        else:
            self.new_traces += 1
            self.queued_run_ids |= {run_id} if run_id else set()

    def add_run(self, run: Run) -> None:
        """Add a finished run of any kind."""
        if run.state != "done":
            self.failed.append(run)
            return
        if reason := why_run_found_nothing(run):
            self.why_nothing[reason] += 1
        match run.kind:
            case "evaluate":
                resent = "duplicate_of" in run.result
                self.resent += resent
                self.not_reflected += run.next_run_id is None and not resent
            case "apply":
                self._add_changes(run)
            case "reflect":
                self._add_reflection(run)
            case _:
                pass  # a curation plan is visible in the changes that were applied

    def _add_changes(self, run: Run) -> None:
        result = run.result
        self.proposals += result["proposal_id"] is not None
        for change in result["changes"]:
            fields = {name: change[name] for name in ("action", "key", "content", "reason")}
            line = self._line_of_traces(change.get("trace_ids", ())) or self.line_of(run)
            self.changes.append(BulletChange(result["playbook"], line=line, **fields))

    def _add_reflection(self, run: Run) -> None:
        response = GenerateReflectionResponse.from_json(run.result)
        self.degraded += run.degraded
        self.verdicts.update(verdict.tag for verdict in response.verdicts)
        for strategy in response.strategies:
            if strategy.new:
                self._strategy_ids.add(strategy.id)
            else:
                self.known_strategies += 1
        reflection_id = response.reflection_id
        if reflection_id is None:
            self.nothing_found += 1
            return
        if response.result == "already_known":
            self.known_reflections += 1
        else:
            self._reflection_ids.add(reflection_id)
        lesson = self._lessons.setdefault(reflection_id, LearnedReflection(response, []))
        lesson.lines.append(self.line_of(run))

    def line_of(self, run: Run) -> int:
        """The position of the run's trace in the input, 0 if it was not in the input."""
        return self._line_by_trace.get(run.trace_id or "", 0)

    def _line_of_traces(self, trace_ids: Iterable[str]) -> int:
        """The first position of one of these traces in the input, 0 if none was in it."""
        lines = (self._line_by_trace.get(trace_id, 0) for trace_id in trace_ids)
        return min((line for line in lines if line), default=0)

    @property
    def total_traces(self) -> int:
        return self.new_traces + self.duplicates + len(self.rejected)

    @property
    def new_reflections(self) -> int:
        return len(self._reflection_ids)

    @property
    def new_strategies(self) -> int:
        return len(self._strategy_ids)

    @property
    def is_successful(self) -> bool:
        return not self.rejected and not self.failed

    def count_changes(self, action: str) -> int:
        """The number of bullets that were `added`, `updated`, `merged`, `deleted` or `kept`."""
        return sum(change.action == action for change in self.changes)

    def most_important(self) -> list[LearnedReflection]:
        """All lessons by importance, then by the number of traces that taught them."""
        return sorted(
            self._lessons.values(), key=lambda lesson: (-lesson.importance, -len(lesson.lines))
        )

    def to_json(self, *, seconds: float, unfinished: Iterable[str]) -> Json:
        """The report of `hansei reflect --json`. `unfinished` holds the IDs of unfinished runs."""
        lessons = [
            {**lesson.response.model_dump(), "lines": lesson.lines}
            for lesson in self.most_important()
        ]
        return {
            "traces": self.total_traces,
            "new_traces": self.new_traces,
            "duplicates": self.duplicates,
            "rejected": [receipt.model_dump() for receipt in self.rejected],
            "new_reflections": self.new_reflections,
            "new_strategies": self.new_strategies,
            "known_reflections": self.known_reflections,
            "known_strategies": self.known_strategies,
            "nothing_found": self.nothing_found,
            "why_nothing": dict(self.why_nothing),
            "degraded": self.degraded,
            "not_reflected": self.not_reflected,
            "resent": self.resent,
            "verdicts": dict(self.verdicts),
            "changes": [asdict(change) for change in self.changes],
            "proposals": self.proposals,
            "failed": [self._failure(run) for run in self.failed],
            "unfinished": sorted(unfinished),
            "seconds": round(seconds, 3),
            "lessons": lessons,
        }

    def _failure(self, run: Run) -> dict[str, Any]:
        ids = {"run_id": run.id, "trace_id": run.trace_id, "line": self.line_of(run)}
        return ids | {"state": run.state, "error": run.error}
