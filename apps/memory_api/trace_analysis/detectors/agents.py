"""Detects what characterizes a run of several agents: who did what, hand-offs, failed code,
repeated messages, and who ended the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.detectors.claims import is_empty_output
from memory_api.trace_analysis.structure import AgentTeam, RepeatedMessage, UnresolvedOutput
from memory_api.trace_analysis.team import AgentStep, Role, author_of, step_counts

_DIGITS_AND_SPACE = re.compile(r"[\d\W_]+")
_MAX_KEY_CHARACTERS = 240
_MAX_LISTED = 5


def find_team(steps: Sequence[AgentStep]) -> AgentTeam | None:
    """None for a run of one agent."""
    acting = [step for step in steps if step.is_blameable]
    if not acting:
        return None
    hand_offs = sum(one.agent != other.agent for one, other in pairwise(acting))
    return AgentTeam(
        agents=step_counts(steps),
        hand_off_count=hand_offs,
        code_count=sum(bool(step.code) for step in steps),
        last_agent=acting[-1].agent,
        last_event_id=acting[-1].event_id,
    )


def find_repeated_messages(steps: Sequence[AgentStep]) -> tuple[RepeatedMessage, ...]:
    """Messages of one agent that start with the same 240 characters apart from digits and
    punctuation; at most three, most repetitions first.
    """
    groups: dict[tuple[str, str, str], list[AgentStep]] = {}
    for step in steps:
        if not step.is_blameable:
            continue
        key = _DIGITS_AND_SPACE.sub(" ", step.text[:_MAX_KEY_CHARACTERS]).casefold().strip()
        if len(key) > 20:
            code = "" if not step.code else step.code
            groups.setdefault((step.agent, key, code), []).append(step)
    repeated = [
        RepeatedMessage(
            event_id=group[1].event_id,
            event_ids=tuple(step.event_id for step in group[:_MAX_LISTED]),
            agent=group[0].agent,
            count=len(group),
            quote=excerpt(group[0].text, 100),
        )
        for group in groups.values()
        if len(group) > 1
    ]
    return tuple(sorted(repeated, key=lambda message: -message.count)[:3])


def find_unresolved_outputs(steps: Sequence[AgentStep]) -> tuple[UnresolvedOutput, ...]:
    """Outputs with an error or without text after which no code of the run succeeded; at most
    three.
    """
    outputs = [step for step in steps if step.role is Role.OUTPUT]
    successes = [s.position for s in outputs if s.exit_code == 0 and not is_empty_output(s)]
    last_success = max(successes, default=-1)
    results: list[UnresolvedOutput] = []
    for output in outputs:
        failed = output.exit_code not in (0, None)
        if output.position < last_success or not (failed or is_empty_output(output)):
            continue
        author = author_of(steps, output)
        following = next((s for s in steps[output.position + 1 :] if s.is_blameable), None)
        results.append(
            UnresolvedOutput(
                event_id=author.event_id,
                output_event_id=output.event_id,
                agent=author.agent,
                exit_code=output.exit_code,
                next_event_id=following.event_id if following and not following.code else None,
                next_agent=following.agent if following and not following.code else "",
            )
        )
    return tuple(results[:3])
