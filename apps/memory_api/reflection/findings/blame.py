"""Which events are to blame, or to thank, most telling first."""

from __future__ import annotations

from apps.memory_api.reflection.findings.compose import unrepaired, wrong
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.traces.schemas import OutcomeType

MOST = 5


def sources(f: Findings, outcome: OutcomeType) -> list[str]:
    """At most five event ids: the call behind the outcome, never the response that only reports
    it."""
    found = _thanks(f) if outcome is OutcomeType.SUCCESS else _blame(f)
    found.append(f.last_call_event or f.last_said_event or f.last_event)
    return list(dict.fromkeys(x for x in found if x))[:MOST]


def _blame(f: Findings) -> list[str | None]:
    found: list[str | None] = []
    if f.crash:
        found += [f.crash.cause_event, f.crash.event]
    made = [d.event for d in f.departures if d.event]
    found += made
    if (f.departures and not made) or f.untold:
        found += [r.event for r in reversed(f.refusals)] + [u.event for u in f.untold]
    if f.answer and wrong(f):
        known = f.answer.expected_event if f.answer.given else None
        found += [f.answer.event if f.answer.given else None, f.answer.reason_event, known]
    for streak in f.streaks:
        found += [streak.event, *streak.events[1:3]]
    found += _accepted(f)
    last = unrepaired(f)
    if f.open_end and f.failures:
        found.append(f.failures[0].event)
    found += [r.event for r in f.repeats if r.failing][:2]
    if last:
        found += [last.event, last.response_event]
    if f.contrast:
        found.append(f.contrast.event)
    found += [u.event for u in f.unconfirmed]
    if f.dialogue:
        found += [f.dialogue.before_event, f.dialogue.shortest_event]
    found += [r.event for r in f.retries]
    found += [r.event for r in f.refusals[-1:]] + [f.last_write_event]
    return found


def _accepted(f: Findings) -> list[str | None]:
    """The first change a failed run made, when nothing in the trace says what went wrong: what came
    after built on it, and no error stopped it. Not for a run that says why it failed."""
    known = (
        f.crash or f.departures or f.untold or f.streaks or f.open_end or (f.answer and wrong(f))
    )
    return [] if known else [f.first_write_event]


def _thanks(f: Findings) -> list[str | None]:
    found: list[str | None] = []
    for retry in f.retries[:2]:
        found += [retry.event, retry.failed_event]
    if f.contrast:
        found.append(f.contrast.event)
    found += [h.event for h in f.hops[:1]]
    if f.origin:
        found.append(f.origin.event)
    if f.dialogue:
        found.append(f.dialogue.longest_event)
    return [*found, f.last_write_event, *(r.event for r in f.refusals[-1:])]
