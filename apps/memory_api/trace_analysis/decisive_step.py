"""Ranks the steps of a failed run of several agents: which one, had it been done right, would most
likely have changed the outcome.

Score of a step = early + evidence.

- early: 1 / (1 + n / `EARLY_HALF`), where n counts the steps of agents before it. Later steps build
  on earlier ones, so of two mistakes the earlier one decides.
- evidence: the largest weight in `EVIDENCE` of what the findings hold about it. Several findings
  about one step often have one cause, so their weights are not added up.
- a plan that an agent states together with the task counts `PLAN_SHARE`, and a coordinator's step
  `COORDINATOR_SHARE`: it often repeats what a worker said. The last step reports what others
  decided and counts `LAST_STEP_SHARE`.

Steps that state the task, outputs and bookkeeping are no candidates: what caused an output is the
step with the code.
"""

from __future__ import annotations

from collections.abc import Sequence

from apps.memory_api.trace_analysis.structure import (
    AnswerOrigin,
    OmittedConstraint,
    RepeatedMessage,
    UnresolvedOutput,
    UnsupportedStatement,
)
from apps.memory_api.trace_analysis.team import AgentStep, Role

EARLY_HALF = 3.0
COORDINATOR_SHARE = 0.6
PLAN_SHARE = 0.55
LAST_STEP_SHARE = 0.5
EVIDENCE = {
    "answer": 0.7,
    "unsupported": 0.4,
    "guess": 0.5,
    "unresolved": 0.3,
    "omitted": 0.3,
    "repeated": 0.3,
}
MAX_RANKED = 5


def rank_steps(
    steps: Sequence[AgentStep],
    origin: AnswerOrigin | None,
    unsupported: Sequence[UnsupportedStatement],
    unresolved: Sequence[UnresolvedOutput],
    omitted: OmittedConstraint | None,
    repeated: Sequence[RepeatedMessage],
) -> tuple[str, ...]:
    """IDs of at most five events, most likely first; () for a run of one agent."""
    found = [
        ("answer", origin.author_event_id if origin else None),
        *(("unsupported", statement.event_id) for statement in unsupported),
        *(("unresolved", output.event_id) for output in unresolved),
        *(("guess", output.next_event_id) for output in unresolved),
        ("omitted", omitted.event_id if omitted else None),
        *(("repeated", message.event_id) for message in repeated),
    ]
    evidence: dict[str | None, float] = {}
    for kind, event_id in found:
        evidence[event_id] = max(evidence.get(event_id, 0.0), EVIDENCE[kind])
    candidates = [step for step in steps if step.is_blameable]
    scores = {step.event_id: PLAN_SHARE for step in steps[:1] if step.is_plan}
    for number, step in enumerate(candidates):
        score = 1 / (1 + number / EARLY_HALF) + evidence.get(step.event_id, 0.0)
        if step.role is Role.COORDINATOR:
            score *= COORDINATOR_SHARE
        if number and number == len(candidates) - 1:
            score *= LAST_STEP_SHARE
        scores[step.event_id] = score
    return tuple(sorted(scores, key=lambda event_id: -scores[event_id])[:MAX_RANKED])
