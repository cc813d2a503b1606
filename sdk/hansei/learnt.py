"""What came of a batch of traces: counts, what was refused or failed, and the lessons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
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


@dataclass(frozen=True)
class Change:
    """What became of one bullet of a playbook; `line` is the trace that brought it about."""

    playbook: str
    action: str
    key: str | None
    content: str
    reason: str
    line: int


@dataclass
class Learnt:
    """Fed with the answers of `send_traces`, then with the runs that learnt from the traces."""

    new: int = 0
    duplicates: int = 0
    refused: list[Sent] = field(default_factory=list[Sent])
    queued: set[str] = field(default_factory=set[str])
    earlier: set[str] = field(default_factory=set[str])
    """Runs of traces that were there already: somebody may still be at work on them."""
    nothing_found: int = 0
    witnessed: int = 0
    """Traces whose reflection was here before."""
    strategies_witnessed: int = 0
    """How often a strategy was said that was here before."""
    degraded: int = 0
    left_out: int = 0
    """Traces that needed no reflection, as their evaluation found."""
    resent: int = 0
    """Traces without a name that were here already, known by what happened in them."""
    verdicts: Counter[str] = field(default_factory=Counter[str])
    """On the bullets that were used: helpful, harmful, neutral."""
    changes: list[Change] = field(default_factory=list["Change"])
    proposals: int = 0
    """Changes of a playbook that wait for a person."""
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
        """Any step of learning from a trace."""
        if run["state"] != "done":
            self.failed.append(run)
            return
        match run["kind"]:
            case "evaluate":
                resent = "same_as" in run["result"]
                self.resent += resent
                self.left_out += run["next_run_id"] is None and not resent
            case "merge":
                self._add_changes(run)
            case "reflect":
                self._add_reflection(run)
            case _:
                pass  # what a curator proposed is told by what was merged

    def _add_changes(self, run: Run) -> None:
        merged = run["result"]
        self.proposals += merged["proposal_id"] is not None
        for change in merged["changes"]:
            self.changes.append(Change(merged["playbook"], line=self.line_of(run), **change))

    def _add_reflection(self, run: Run) -> None:
        answer: Reflected = run["result"]
        self.degraded += run["degraded"]
        self.verdicts.update(verdict["tag"] for verdict in answer.get("verdicts", ()))
        for taught in answer.get("strategies", ()):
            if taught["new"]:
                self._strategies.add(taught["id"])
            else:
                self.strategies_witnessed += 1
        key = answer.get("reflection_id")
        if key is None:
            self.nothing_found += 1
            return
        if answer.get("result") == "witnessed":
            self.witnessed += 1
        else:
            self._stored.add(key)
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
        """New ones."""
        return len(self._stored)

    @property
    def strategies(self) -> int:
        """New ones."""
        return len(self._strategies)

    @property
    def good(self) -> bool:
        return not self.refused and not self.failed

    def counted(self, action: str) -> int:
        """How many bullets were `added`, `updated`, `merged`, `deleted` or `kept`."""
        return sum(change.action == action for change in self.changes)

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
            "strategies_witnessed": self.strategies_witnessed,
            "nothing_found": self.nothing_found,
            "degraded": self.degraded,
            "left_out": self.left_out,
            "resent": self.resent,
            "verdicts": dict(self.verdicts),
            "changes": [asdict(change) for change in self.changes],
            "proposals": self.proposals,
            "failed": [self._failure(run) for run in self.failed],
            "waiting": sorted(waiting),
            "seconds": round(seconds, 3),
            "lessons": lessons,
        }

    def _failure(self, run: Run) -> dict[str, Any]:
        named = {"run_id": run["id"], "trace_id": run["trace_id"], "line": self.line_of(run)}
        return named | {"state": run["state"], "error": run["error"]}
