"""Ranks the steps of a failed run of several agents: which one, had it been done right, would most
likely have changed the outcome.

Score of a step = prior + early + evidence.

- prior: by what the step is (`PRIOR`). A program or a report of a worker decides more often than a
  call, a call more often than an instruction. The last step reports what others decided.
- early: `EARLY` / (1 + n / `EARLY_HALF`), where n counts the steps of agents before it. Later steps
  build on earlier ones, so of two mistakes the earlier one decides.
- evidence: the largest weight in `EVIDENCE` of what the findings hold about it, and
  `SECOND_SHARE` of the next one. Several findings about one step often have one cause.

A step that contradicts what the run had shown before it (`Divergence`) weighs most; then the step
that made the value of the final answer. Steps that state the task, outputs and bookkeeping are no
candidates: what caused an output is the step with the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memory_api.trace_analysis.detectors.derivation import AnswerSteps
from memory_api.trace_analysis.structure import (
    Divergence,
    OmittedConstraint,
    RepeatedMessage,
    UnresolvedOutput,
    UnsupportedStatement,
)
from memory_api.trace_analysis.team import AgentStep, Role

EARLY = 0.35
EARLY_HALF = 4.0
SECOND_SHARE = 0.2
PRIOR = {
    "program": 0.35,
    "message": 0.3,
    "call": 0.15,
    "plan": 0.2,
    "coordinator": 0.05,
    "last": 0.0,
}
EVIDENCE = {
    "misread": 0.9,
    "stale_file": 0.9,
    "typed_in": 0.85,
    "altered_number": 0.8,
    "altered_unit": 0.8,
    "unopened": 0.8,
    "stalled_call": 0.8,
    "stalled_output": 0.8,
    "unread_files": 0.7,
    "ignored_objection": 0.75,
    "passed_over": 0.6,
    "from_statement": 0.7,
    "substituted": 0.7,
    "partial_view": 0.65,
    "introduced_last": 0.8,
    "computed": 0.5,
    "selected": 0.5,
    "chosen": 0.5,
    "input": 0.4,
    "looked_up": 0.25,
    "without_call": 0.45,
    "introduced": 0.4,
    "guess": 0.4,
    "unsupported": 0.3,
    "calculated": 0.25,
    "unresolved": 0.25,
    "repeated": 0.2,
    "omitted": 0.1,
}
MAX_RANKED = 5
_STATED = ("from_statement", "stale_file")


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """The findings about the steps of a run. `own_values`: numbers of the program that computed the
    answer that occur in no earlier event. A program that only calculates, or that follows a
    statement, weighs less.
    """

    divergences: Sequence[Divergence]
    answer: AnswerSteps
    own_values: Sequence[str]
    unsupported: Sequence[UnsupportedStatement]
    unresolved: Sequence[UnresolvedOutput]
    omitted: OmittedConstraint | None
    repeated: Sequence[RepeatedMessage]

    def kinds(self) -> Iterator[tuple[str, str | None]]:
        """Kind of evidence and ID of the event."""
        answer = self.answer
        stalled = [item for item in self.divergences if item.kind.startswith("stalled")]
        is_open = not (answer.computed or answer.selected)
        for item in self.divergences:
            yield "repeated" if item in stalled and not is_open else item.kind, item.event_id
        followed = {item.source_event_id for item in self.divergences if item.kind in _STATED}
        is_guided = answer.computed in followed
        is_own = bool(self.own_values) or not answer.is_arithmetic
        yield "computed" if is_own and not is_guided else "calculated", answer.computed
        yield "selected", answer.selected
        yield "looked_up", answer.looked_up
        yield "chosen", answer.chosen
        yield from (("input", event_id) for event_id in answer.inputs)
        is_last = answer.is_last and not stalled
        yield "introduced_last" if is_last else "introduced", answer.introduced
        yield from (("unsupported", item.event_id) for item in self.unsupported)
        yield from (("unresolved", item.event_id) for item in self.unresolved)
        yield from (("guess", item.next_event_id) for item in self.unresolved)
        yield "omitted", self.omitted.event_id if self.omitted else None
        yield from (("repeated", item.event_id) for item in self.repeated)


def rank_steps(steps: Sequence[AgentStep], found: StepEvidence) -> tuple[str, ...]:
    """IDs of at most five events, most likely first; () for a run of one agent."""
    weights: dict[str, list[float]] = {}
    for kind, event_id in found.kinds():
        if event_id is not None:
            weights.setdefault(event_id, []).append(EVIDENCE[kind])
    candidates = [step for step in steps if step.is_blameable]
    scores = {step.event_id: PRIOR["plan"] + EARLY for step in steps[:1] if step.is_plan}
    for number, step in enumerate(candidates):
        is_last = number == len(candidates) - 1
        known = sorted(weights.get(step.event_id, [0.0]), reverse=True)
        scores[step.event_id] = (
            _prior(step, number, is_last=is_last)
            + EARLY / (1 + number / EARLY_HALF)
            + known[0]
            + SECOND_SHARE * sum(known[1:2])
        )
    return tuple(sorted(scores, key=lambda event_id: -scores[event_id])[:MAX_RANKED])


def _prior(step: AgentStep, number: int, *, is_last: bool) -> float:
    if number and is_last:
        return PRIOR["last"]
    if step.role is Role.COORDINATOR:
        return PRIOR["coordinator" if number else "plan"]
    if step.program:
        return PRIOR["program"]
    return PRIOR["call" if step.is_call else "message"]
