"""Which findings are told, and in what order: the language-free half of a reflection's text."""

from __future__ import annotations

from apps.memory_api.reflection.findings.schemas import Answer, Contrast, Failure, Findings, Refusal
from apps.memory_api.reflection.findings.words.protocol import Words
from apps.memory_api.traces.quotes import cut
from apps.memory_api.traces.schemas import ErrorInfo, OutcomeType

MOST_SENTENCES = 5
MOST_CHARACTERS = 1_100


def compose(f: Findings, outcome: OutcomeType, error: ErrorInfo | None, words: Words) -> str:
    """The reflection: what was asked, what happened, the step behind it, what stood in the trace
    beside it; '' = nothing."""
    told = sentences(f, outcome, error, words)
    if not told:
        return ""
    if f.again and outcome is OutcomeType.SUCCESS and not f.failed_calls:
        return ""
    talk = f.dialogue and f.dialogue.topic and not f.departures and not f.untold
    opening = "" if talk else words.opening(f.task)
    text = opening
    for sentence in told[:MOST_SENTENCES]:
        joined = (text + words.space + sentence) if text else sentence
        if len(joined) > MOST_CHARACTERS and text != opening:
            break
        text = joined
    return text


def sentences(
    f: Findings, outcome: OutcomeType, error: ErrorInfo | None, words: Words
) -> list[str]:
    """What there is to tell, most important first: what went wrong or right, then the reasons."""
    won = outcome is OutcomeType.SUCCESS
    told = _success(f, words) if won else _failure(f, outcome, error, words)
    return [t for t in told if t]


def wrong(f: Findings) -> bool:
    """An answer was given and the environment or the ground truth speaks against it."""
    a = f.answer
    return a is not None and (
        a.verdict is False
        or (a.verdict is None and a.expected is not None and a.relation not in ("same", "unknown"))
    )


def unrepaired(f: Findings) -> Failure | None:
    """The last failure no later call of the tool made good."""
    return next((x for x in reversed(f.failures) if not x.repaired), None)


def _failure(f: Findings, outcome: OutcomeType, error: ErrorInfo | None, w: Words) -> list[str]:
    told = _reported(f, error, w)
    if f.again:
        told.append(w.again(f.again, False, f.told_before is not None))
    if f.calls or f.said_anything:
        told += _deviations(f, w)
    if f.answer and wrong(f) and f.answer.given:
        told += _answer(f.answer, w)
    elif f.open_end and f.calls and not any(r.event == f.last_call_event for r in f.refusals):
        told += [w.halted(f, outcome)]
    told += _struggle(f, w, told)
    if f.dialogue and not f.departures and not f.untold:
        told += [w.talk(f.dialogue, outcome), w.talk_manner(f.dialogue, False)]
    if f.contrast and not (
        f.departures and {d.tool for d in f.departures} & {f.contrast.tool, *_tools_of(f.contrast)}
    ):
        told.append(w.contrast(f.contrast))
    told += [w.unconfirmed(u) for u in f.unconfirmed[:1]]
    if not told:
        told = [w.unexplained(f, outcome)]
    elif len(told) < 2 and f.last_said and not f.crash and not f.open_end:
        told.append(w.closing(f))
    return told + (
        [w.slow(f.slow)]
        if f.slow and f.slow.share >= 0.5 and outcome is OutcomeType.TIMEOUT
        else []
    )


def _reported(f: Findings, error: ErrorInfo | None, w: Words) -> list[str]:
    """What the environment said went wrong."""
    told: list[str] = []
    if f.crash:
        told.append(w.crash(f.crash))
    elif error and error.error_message:
        told.append(w.stated(cut(error.error_message), f.last_event))
    if f.assertions:
        told.append(w.assertions(f.assertions))
    return told


def _answer(a: Answer, w: Words) -> list[str]:
    told = [w.answered(a, False)]
    if a.relation not in {"same", "wider", "narrower"} and not _short(a):
        told.append(w.answer_seen(a) if a.expected_event else w.answer_unseen(a))
    if a.reason:
        told.append(w.reasoning(a))
    return told


def _short(a: Answer) -> bool:
    """Yes, no and the like: whether a response "contains" them says nothing."""
    return min(len(a.given), len(a.expected or a.given)) < 4


def _deviations(f: Findings, w: Words) -> list[str]:
    told: list[str] = []
    if f.departures:
        handed = {r.event for r in f.refusals if r.kind == "handed_over"}
        told.append(
            w.departures([d for d in f.departures if d.event not in handed] or f.departures)
        )
        changed = next((d for d in f.departures if d.kind != "missing"), None)
        retry = next(
            (r for r in f.retries if changed and r.event == changed.event and r.changes), None
        )
        if retry:
            told.append(w.retried_wrong(retry))
        elif changed and changed.kind == "changed":
            told.append(w.unnoticed(changed))
        refusal = _declined_instead(f)
        if refusal:
            told.append(w.refusal(refusal))
    if f.untold:
        told.append(w.untold(f.untold))
    return told


def _declined_instead(f: Findings) -> Refusal | None:
    """The message that declined, or handed over, what an action that is missing would have done."""
    stems = {
        part[:5].casefold()
        for d in f.departures
        if d.kind == "missing"
        for part in d.tool.split("_")
        if len(part) > 3
    }
    if not stems:
        return None
    fitting = [r for r in f.refusals if any(s in f"{r.quote} {r.asked}".casefold() for s in stems)]
    only_missing = all(d.kind == "missing" for d in f.departures)
    return (fitting or (list(f.refusals) if only_missing else [None]))[-1] if f.refusals else None


def _struggle(f: Findings, w: Words, before: list[str]) -> list[str]:
    """Loops, failures and what could have ended them."""
    told: list[str] = []
    for streak in f.streaks[:1]:
        told.append(w.streak(streak))
        if streak.unquoted or streak.untried:
            told.append(w.ignored(streak))
    for repeat in [r for r in f.repeats if r.failing][:1]:
        told.append(w.repeat(repeat))
    last = unrepaired(f)
    if (
        last
        and not f.streaks
        and len(before) < 3
        and not (f.open_end and last.event == f.last_call_event)
    ):
        told.append(w.unrepaired(last, sum(1 for x in f.failures if not x.repaired) - 1))
        if last.invented:
            told.append(w.invented(last))
    if f.retries and not f.departures and not f.streaks:
        told.append(w.retry(f.retries[-1]))
    if not told and not before and not f.dialogue:
        told += [w.refusal(r) for r in f.refusals[-1:]]
        told += [w.repeat(r) for r in f.repeats[:1]]
        told = [w.unexplained(f, OutcomeType.FAILURE), *told] if told else []
    return told


def _success(f: Findings, w: Words) -> list[str]:
    told: list[str] = []
    if f.answer and f.answer.given:
        told.append(w.answered(f.answer, True))
    if f.again:
        told.append(w.again(f.again, True, False))
    if f.contrast:
        told.append(w.contrast(f.contrast))
    told += [w.retry(retry) for retry in f.retries[:2]] or [w.streak(s) for s in f.streaks[:1]]
    told += _way(f, w)
    if f.answer and f.answer.reason and len(told) == 1:
        told.append(w.reasoning(f.answer))
    if f.calls > 1 or (f.calls and not told):
        told.append(w.path(f))
    if f.calls and not f.answer and not f.retries and not f.refusals and f.last_said:
        told.append(w.closing(f))
    if f.slow and f.slow.share >= 0.3:
        told.append(w.slow(f.slow))
    if f.dialogue and _worth_telling(f):
        told += [w.talk(f.dialogue, OutcomeType.SUCCESS), w.talk_manner(f.dialogue, True)]
    return told


def _way(f: Findings, w: Words) -> list[str]:
    """How the decisive call came about, and what was declined on the way."""
    told: list[str] = []
    if f.hops:
        told.append(w.hops(f.hops))
    elif f.origin and not any(c.name for r in f.retries for c in r.changes):
        told.append(w.origin(f.origin))
    if f.refusals and not f.retries:
        told.append(w.stood_firm(f.refusals[-1]))
    return told


def _tools_of(c: Contrast) -> set[str]:
    return {call.split("(", 1)[0] for call in (*c.theirs, *c.ours)}


def _worth_telling(f: Findings) -> bool:
    d = f.dialogue
    return d is not None and bool(d.ratings or d.unhappy or d.repeated or f.refusals)
