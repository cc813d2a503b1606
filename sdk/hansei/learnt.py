"""What came of a batch of traces: counts, what was refused or failed, and the lessons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hansei.answers import Json, Reflected, Run, Sent


@dataclass
class Lesson:
    """A reflection and its strategy; `lines` are the traces that taught it."""

    answer: Reflected
    lines: list[int]

    @property
    def importance(self) -> float:
        return self.answer.get("importance") or 0.0


@dataclass
class Learnt:
    """Fed with the answers of `send_traces`, then with the runs that reflected on the traces."""

    new: int = 0
    duplicates: int = 0
    refused: list[Sent] = field(default_factory=list[Sent])
    queued: set[str] = field(default_factory=set[str])
    earlier: set[str] = field(default_factory=set[str])
    """Runs of traces that were there already: somebody may still be at work on them."""
    nothing_found: int = 0
    witnessed: int = 0
    degraded: int = 0
    failed: list[Run] = field(default_factory=list[Run])
    _stored: set[str] = field(default_factory=set[str])
    _strategies: set[str] = field(default_factory=set[str])
    _lessons: dict[str, Lesson] = field(default_factory=dict[str, Lesson])
    _lines: dict[str, int] = field(default_factory=dict[str, int])

    def add_sent(self, sent: Sent) -> None:
        if "error" in sent:
            self.refused.append(sent)
            return
        self._lines[sent.get("trace_id", "")] = sent.get("line") or 0
        run_id = sent.get("run_id")
        if sent.get("duplicate"):
            self.duplicates += 1
            self.earlier |= {run_id} if run_id else set()
        else:
            self.new += 1
            self.queued |= {run_id} if run_id else set()

    def add_run(self, run: Run) -> None:
        if run["state"] != "done":
            self.failed.append(run)
            return
        answer: Reflected = run["result"]
        self.degraded += run["degraded"]
        key = answer.get("reflection_id")
        if key is None:
            self.nothing_found += 1
            return
        if answer.get("result") == "witnessed":
            self.witnessed += 1
        else:
            self._stored.add(key)
        strategy = answer.get("strategy_id")
        self._strategies |= {strategy} if strategy else set()
        lesson = self._lessons.setdefault(key, Lesson(answer, []))
        lesson.lines.append(self.line_of(run))

    def line_of(self, run: Run) -> int:
        """Where the trace of a run was in what was sent."""
        return self._lines.get(run["trace_id"] or "", 0)

    @property
    def sent(self) -> int:
        return self.new + self.duplicates + len(self.refused)

    @property
    def reflections(self) -> int:
        """New ones; `witnessed` is how many traces said what was known already."""
        return len(self._stored)

    @property
    def strategies(self) -> int:
        return len(self._strategies)

    @property
    def good(self) -> bool:
        return not self.refused and not self.failed

    def most_important(self) -> list[Lesson]:
        """All lessons, the most important first; among equals, what more traces taught."""
        return sorted(self._lessons.values(), key=lambda each: (-each.importance, -len(each.lines)))

    def as_json(self, *, seconds: float, waiting: Iterable[str]) -> Json:
        """The report for programs. `waiting` are the runs nobody waited for."""
        lessons = [{**lesson.answer, "lines": lesson.lines} for lesson in self.most_important()]
        return {
            "sent": self.sent,
            "new": self.new,
            "duplicates": self.duplicates,
            "refused": self.refused,
            "reflections": self.reflections,
            "strategies": self.strategies,
            "witnessed": self.witnessed,
            "nothing_found": self.nothing_found,
            "degraded": self.degraded,
            "failed": [self._failure(run) for run in self.failed],
            "waiting": sorted(waiting),
            "seconds": round(seconds, 3),
            "lessons": lessons,
        }

    def _failure(self, run: Run) -> dict[str, Any]:
        named = {"run_id": run["id"], "trace_id": run["trace_id"], "line": self.line_of(run)}
        return named | {"state": run["state"], "error": run["error"]}
