"""Which rule a run teaches, if any: the language-free half of a strategy."""

from __future__ import annotations

from apps.memory_api.reflection.findings.compose import unrepaired, wrong
from apps.memory_api.reflection.findings.schemas import (
    Answer,
    Contrast,
    Departure,
    Findings,
    Streak,
)
from apps.memory_api.reflection.findings.words.protocol import Advice
from apps.memory_api.traces.quotes import plain
from apps.memory_api.traces.schemas import OutcomeType


def advise(f: Findings, outcome: OutcomeType, say: Advice) -> str | None:
    """One rule "When …, do …" from the strongest evidence, or None when the run supports none."""
    if outcome is OutcomeType.SUCCESS:
        return _from_success(f, say)
    if f.again and not f.departures:
        return say.start_otherwise(f.again)
    return _from_mistake(f, say) or _from_struggle(f, say) or _from_manner(f, say)


def _from_mistake(f: Findings, say: Advice) -> str | None:
    if f.crash:
        return _crash(f, say)
    if f.assertions:
        return say.assertion(f.assertions[0])
    if f.answer and wrong(f) and f.answer.given:
        return _answer(f.answer, say)
    if f.departures:
        return _departure(f, say)
    return say.tell_figure(f.untold[0]) if f.untold else None


def _crash(f: Findings, say: Advice) -> str | None:
    crash = f.crash
    if crash is None:
        return None
    if crash.wanted and crash.got:
        return say.convert(crash)
    what = crash.cause_call or crash.place.split(" line ")[0]
    kind = "parse" if crash.kind == "syntax" and not crash.cause_call else crash.kind
    return say.guard(kind, what, crash.message, False) if what else None


def _answer(a: Answer, say: Advice) -> str:
    if a.relation in {"same", "wider", "narrower"}:
        return say.exact_form(a)
    if a.comparison:
        return say.compare(a)
    if a.expected_event:
        return say.weigh_candidates(a)
    if a.unsearched:
        return say.search_name(a)
    return say.read_first(a) if a.given_event is None else say.another_reading(a)


def _departure(f: Findings, say: Advice) -> str:
    first: Departure = f.departures[0]
    if first.kind == "changed" and first.changes:
        return say.settle(first)
    missing = [d for d in f.departures if d.kind == "missing"]
    if missing and first.event in {r.event for r in f.refusals}:
        return say.before_declining(missing[0])
    if first.kind == "extra":
        return say.hold_back(first)
    done = f.last_write is not None and not any(r.kind == "handed_over" for r in f.refusals)
    return (
        say.all_parts(missing)
        if done or not f.refusals
        else say.before_declining(missing[0] if missing else first)
    )


def _from_struggle(f: Findings, say: Advice) -> str | None:
    if f.streaks and (rule := _streak(f, f.streaks[0], say)):
        return rule
    if f.contrast and (rule := _contrast(f, f.contrast, say)):
        return rule
    return _failure(f, say) or next((r for x in f.retries if (r := say.change_it(x))), None)


def _streak(f: Findings, streak: Streak, say: Advice) -> str | None:
    if streak.unquoted:
        return say.drop_quotes(streak.tool)
    kinds = {x.event: x.kind for x in f.failures}
    if "double" in (kinds.get(e) for e in streak.events):
        return say.guard("double", streak.tool, "", True)
    if streak.untried:
        return say.take_offer(streak.tool, streak.untried)
    return say.give_up_rewording(streak) if streak.tried else None


def _failure(f: Findings, say: Advice) -> str | None:
    last = unrepaired(f)
    if last and last.invented:
        return say.look_up(last)
    failing = next((r for r in f.repeats if r.failing), None)
    if failing:
        return say.no_repeat(failing)
    if last is None:
        return None
    what = last.tool or last.call
    if last.offered:
        return say.take_offer(what, last.offered)
    return say.guard(last.kind, what, last.message, f.failed_calls > 1)


def _from_manner(f: Findings, say: Advice) -> str | None:
    if f.unconfirmed:
        return say.ask_first(f.unconfirmed[0])
    return say.talk(f.dialogue, False) if f.dialogue else None


def _from_success(f: Findings, say: Advice) -> str | None:
    for retry in f.retries:
        if retry.changes and (rule := say.change_it(retry)):
            return rule
    if f.contrast and (rule := _contrast(f, f.contrast, say)):
        return rule
    if f.refusals and f.calls:
        return say.stand_firm(f.refusals[-1])
    if f.hops and f.answer:
        return say.follow_name(f.hops)
    if f.origin and (rule := say.fill_from(f.origin)):
        return rule
    return say.talk(f.dialogue, True) if f.dialogue else None


def _contrast(f: Findings, c: Contrast, say: Advice) -> str | None:
    """The difference that most likely carries over: an argument, the quotation marks, a tool held
    back, a tool used."""
    if c.changes:
        return say.as_the_success(c)
    if c.unquoted:
        return say.drop_quotes(c.unquoted)
    if c.their_answer and f.answer and not c.ours and not c.theirs:
        return _same_pages(f.answer, c.their_answer, say)
    if c.held_back:
        return say.hold_back(Departure("extra", None, c.held_back, ""))
    return say.as_the_success(c)


def _same_pages(a: Answer, other: str, say: Advice) -> str:
    """Both read the same and answered differently."""
    mine, theirs = plain(a.given), plain(other)
    if mine in theirs or theirs in mine:
        return say.exact_form(a)
    return say.compare(a) if a.comparison else say.weigh_candidates(a)
