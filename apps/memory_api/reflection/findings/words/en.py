"""The reflection in English."""

# ruff: noqa: E501 - a sentence is easier to judge on one line

from __future__ import annotations

from collections.abc import Sequence

from apps.memory_api.reflection.findings.schemas import (
    Again,
    Answer,
    Assertion,
    Contrast,
    Crash,
    Departure,
    Dialogue,
    Failure,
    Findings,
    Hop,
    Origin,
    Refusal,
    Repeat,
    Retry,
    Slow,
    Streak,
    Unconfirmed,
    Untold,
)
from apps.memory_api.traces.arguments import BODY, MARKS, SPACE, Change, named
from apps.memory_api.traces.schemas import OutcomeType

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_TIMES = {1: "once", 2: "twice"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def number(n: int) -> str:
    return _NUMBERS[n] if n < len(_NUMBERS) else str(n)


def ordinal(n: int) -> str:
    return _ORDINALS[n - 1] if 0 < n <= len(_ORDINALS) else f"{n}th"


def times(n: int) -> str:
    return _TIMES.get(n, f"{number(n)} times")


def listed(items: Sequence[str], last: str = "and") -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def change(c: Change) -> str:
    """One changed argument, as part of a sentence."""
    if c.name == SPACE:
        return "only the indentation or spacing changed"
    if c.name == MARKS:
        return (
            "the argument was put into quotation marks"
            if (c.after or "")[:1] in "\"'"
            else "the quotation marks went"
        )
    if c.name == BODY:
        return "the text sent was rewritten"
    if c.name == "":
        if not c.after:
            return f"dropping “{c.before}”"
        if not c.before:
            return f"adding “{c.after}”"
        return f"“{c.before}” became “{c.after}”"
    if c.before is None:
        return f"{c.name} was added ({c.after})"
    if c.after is None:
        return f"{c.name} was left out (it had been {c.before})"
    return f"{c.name} went from {c.before} to {c.after}"


def _quoted(items: Sequence[str]) -> str:
    return listed([f"“{i}”" for i in items])


def _stop(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else text + "."


class English:
    """Implements `Words`."""

    space = " "

    def opening(self, task: str) -> str:
        return _stop(f"Asked: {task}") if task else ""

    def crash(self, c: Crash) -> str:
        where = f" in {c.place}" if c.place else ""
        text = f"The run broke off{where}: {_stop(c.message or 'the trace gives no message')}"
        if c.wanted and c.got:
            text += f" The code wanted a {c.wanted} and was handed a {c.got}."
        if c.cause_call:
            return text + f" The step before it was {c.cause_call} ({c.cause_event})."
        return (
            text
            + " The trace shows no step of the agent before the crash, so what it was doing is not known."
        )

    def answered(self, a: Answer, won: bool) -> str:
        where = f" ({a.event})" if a.event else ""
        if not a.given:
            return f"It ended without an answer; {a.expected} was expected."
        if a.verdict is True or (won and a.verdict is None):
            return f"The answer {a.given}{where} was accepted{self._read_in(a)}."
        told = " and was told that is wrong" if a.verdict is False else ""
        text = f"It answered {a.given}{where}{told}"
        if a.expected is None:
            return text + "; the trace does not show the right answer."
        if a.relation == "same":
            return (
                text
                + f", although {a.expected} was expected: only its form differs (plural, spelling, articles or punctuation)."
            )
        if a.relation == "wider":
            return text + f". That holds the expected {a.expected}, but with more words around it."
        if a.relation == "narrower":
            return text + f". That is only part of the expected {a.expected}."
        return text + f"; {a.expected} was expected."

    def _read_in(self, a: Answer) -> str:
        if a.given_call:
            return f"; it stands in the response to {a.given_call}"
        return "; no response contains it word for word" if len(a.given) > 3 else ""

    def answer_seen(self, a: Answer) -> str:
        text = f"The right answer had been in front of it: {a.expected_call} ({a.expected_event}) returned a text with it."
        if a.given_event is None:
            return text + " The answer it gave instead stands in no response."
        if a.given_event == a.expected_event:
            return (
                text
                + " The same response names the answer it gave, so it picked the wrong one of the two."
            )
        return text

    def answer_unseen(self, a: Answer) -> str:
        if a.given_event is None:
            mine = "no response contains the answer it gave word for word"
            return (
                f"It had not read either one: {mine}, nor the expected one."
                if a.expected
                else f"In fact {mine}."
            )
        if a.expected is None:
            return f"It had read that answer in the response to {a.given_event}."
        text = f"It took the answer from the response to {a.given_event}; nothing it opened names the expected one"
        if a.unsearched:
            return text + f", and {listed(a.unsearched)} from the question was never searched for."
        return text + "."

    def reasoning(self, a: Answer) -> str:
        return f"Just before, it reasoned: {_stop(a.reason)}"

    def halted(self, f: Findings, outcome: OutcomeType) -> str:
        how = "ran out of steps or time" if outcome is OutcomeType.TIMEOUT else "stopped"
        if outcome is not OutcomeType.TIMEOUT and not f.last_message:
            end = f"{f.last_call} ({f.last_call_event})"
            return f"The trace ends with {end}; the agent says nothing after it."
        text = f"It {how} after {number(f.calls)} call{'s' * (f.calls > 1)} without an answer"
        if f.streaks and f.last_message:
            return text + "."
        if f.last_message:
            return f"{text}; the last, {f.last_call}, had failed: {_stop(f.last_message)}"
        return f"{text}; the last was {f.last_call}." if f.last_call else text + "."

    def streak(self, s: Streak) -> str:
        text = f"{number(s.count).capitalize()} {s.tool} calls failed in a row"
        if not s.tried:
            return text + f": {_quoted(s.messages)}."
        if s.kept and len(s.tried) > 1:
            return text + f", all built around “{s.kept}”: {listed(s.tried[:4], 'then')}."
        return text + f": {listed(s.tried[:4], 'then')}."

    def ignored(self, s: Streak) -> str:
        if s.unquoted:
            return f"For {s.unquoted} the entry existed under that very name: only the quotation marks were in the way."
        each = "it was" if len(s.untried) == 1 else "none of them was"
        return f"The responses had offered {listed(s.untried)}; {each.replace('it was', 'it was never')} tried."

    def repeat(self, r: Repeat) -> str:
        end = " and failed each time" if r.failing == r.count else ""
        return f"{r.call} was sent {times(r.count)} unchanged{end} ({', '.join(r.events[:3])})."

    def departures(self, d: Sequence[Departure]) -> str:
        parts: list[str] = []
        for item in d[:3]:
            if item.kind == "changed":
                wrong = listed([self._instead(c) for c in item.changes[:3]])
                parts.append(f"It called {item.tool} ({item.event}) with {wrong}.")
            elif item.kind == "extra":
                parts.append(f"It made {item.call} ({item.event}), which was not called for.")
        missing = [item.call for item in d if item.kind == "missing"]
        if missing:
            more = f" and {number(len(missing) - 2)} more" if len(missing) > 2 else ""
            parts.append(
                f"It never made {listed(missing[:2]) if not more else ', '.join(missing[:2])}{more}."
            )
        return " ".join(parts)

    def _instead(self, c: Change) -> str:
        if c.before is None:
            return f"no {c.name} where {c.after} was right"
        if c.after is None:
            return f"an uncalled-for {c.name}={c.before}"
        return f"{c.name}={c.before} where {c.after} was right"

    def unnoticed(self, d: Departure) -> str:
        return (
            f"{d.tool} accepted it without an error, so nothing in the run pointed to the mistake."
        )

    def untold(self, u: Sequence[Untold]) -> str:
        text = f"The user was never told {listed([x.expected for x in u[:3]])}"
        if u[0].said:
            return text + f"; what it said instead ({u[0].event}): {_stop(u[0].said)}"
        return text + "."

    def refusal(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return f"It handed the user over to a person ({r.event}): {_stop(r.quote)}"
        text = (
            f"To “{r.asked}” it replied ({r.event}): {_stop(r.quote)}"
            if len(r.asked) > 24
            else f"It declined ({r.event}): {_stop(r.quote)}"
        )
        return text + (f" Later it did {r.done_later} after all." if r.done_later else "")

    def stood_firm(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return f"It ended with a hand-over to a person ({r.event}), which was right here: {_stop(r.quote)}"
        return f"It told the user what was not possible ({r.event}): {_stop(r.quote)}"

    def unconfirmed(self, u: Unconfirmed) -> str:
        return f"{u.tool} ({u.event}) went out although the user's last words were “{u.user_said}”; the instructions say: {_stop(u.rule)}"

    def assertions(self, a: Sequence[Assertion]) -> str:
        first = a[0]
        name = f"{first.test} fails" if first.test else "A test fails"
        if first.expected and first.actual:
            text = f"{name}: it expects {first.expected} and gets {first.actual}."
        else:
            text = _stop(f"{name}: {first.message}") if first.message else f"{name}."
        others = [x.test for x in a[1:4]]
        return text + (f" Also failing: {listed(others)}." if others else "")

    def unrepaired(self, f: Failure, more: int) -> str:
        said = "the next message says" if f.stated == "words" else "it returned"
        text = f"{f.call} ({f.event}) failed and was not put right; {said}: {_stop(f.message)}"
        return text + (f" {number(more).capitalize()} other calls failed too." if more > 1 else "")

    def invented(self, f: Failure) -> str:
        return f"{listed(f.invented)} in that call stands nowhere earlier in the run: it was made up, not looked up."

    def retry(self, r: Retry) -> str:
        how_often = times(r.failures)
        if (
            r.changes
            and len(r.changes) <= 3
            and all(named(c) and c.before and c.after for c in r.changes)
        ):
            old, new = (
                listed([f"{c.name}={v}" for c in r.changes for v in [getattr(c, side)]])
                for side in ("before", "after")
            )
            from_tool = f", the value {r.via} had returned" if r.via else ""
            again = f" {how_often}, last" if r.failures > 1 else ""
            return f"{r.tool} was refused{again} with {old} (“{r.message}”) and went through with {new}{from_tool} ({r.event})."
        many = f"{r.tool} failed {how_often}, the last time as {r.before}"
        failed = many if r.failures > 1 and r.tool else f"{r.before} failed {how_often}"
        text = f"{failed} (“{r.message}”) and {'the same call' if not r.changes else r.after} ({r.event}) then worked"
        if not r.changes:
            return text + (f" after {listed(r.between)}." if r.between else " unchanged.")
        return f"{text}; {self._changed(r)}."

    def _changed(self, r: Retry) -> str:
        if r.took_offer:
            return "the name was taken from the list the failure had offered"
        if (
            len(r.changes) == 1
            and r.changes[0].name == ""
            and max(len(r.changes[0].before or ""), len(r.changes[0].after or "")) > 60
        ):
            return "the argument was rewritten"
        text = f"what changed: {listed([change(c) for c in r.changes[:3]])}"
        return text + (f" ({r.taken or 'a value'} as {r.via} had returned it)" if r.via else "")

    def retried_wrong(self, r: Retry) -> str:
        return f"A first try had been refused with “{r.message}”; to get past it, {listed([change(c) for c in r.changes[:3]])} ({r.event})."

    def contrast(self, c: Contrast) -> str:
        if c.we_succeeded:
            who = (
                "The attempt that failed before"
                if c.others == 1
                else f"The {number(c.others)} attempts that failed before"
            )
            if c.their_answer and not c.ours and not c.theirs:
                return f"{who} had made the same calls and answered {c.their_answer}."
            if c.changes:
                return f"{who} called {c.tool} otherwise; from there to here, {listed([change(x) for x in c.changes[:2]])}."
            if c.ours and c.theirs:
                return f"{who} did not make {listed(c.ours[:2], 'or')}; the latest made {listed(c.theirs[:2])} instead."
            return (
                f"{who} never made {listed(c.ours[:2], 'or')}."
                if c.ours
                else f"{who} also made {listed(c.theirs[:2])}."
            )
        if c.changes:
            return f"An attempt that succeeded called {c.tool} differently: {listed([change(x) for x in c.changes[:2]])}."
        if c.their_answer and not c.ours and not c.theirs:
            return (
                f"An attempt that succeeded had made the same calls and answered {c.their_answer}."
            )
        if c.theirs:
            return f"An attempt that succeeded made {listed(c.theirs[:2])}, which this run did not."
        return f"An attempt that succeeded did without {listed(c.ours[:2])}."

    def again(self, a: Again, won: bool, lesson: bool) -> str:
        if won:
            before = (
                "An earlier attempt"
                if a.times == 1
                else f"{number(a.times).capitalize()} earlier attempts"
            )
            return f"{before} had gone the same way call for call and stumbled at the same point."
        text = f"It is the {ordinal(a.times + 1)} attempt to make exactly these calls and end like this"
        return text + (
            ", although a lesson from an earlier attempt stood at its start." if lesson else "."
        )

    def hops(self, hops: Sequence[Hop]) -> str:
        first = hops[0]
        text = f"{first.start} named {first.name}, which the question does not mention, and the run went on with {first.call}"
        if len(hops) > 1:
            text += f", then from there to {hops[1].name}"
        return text + "."

    def path(self, f: Findings) -> str:
        way = " → ".join(tool if n == 1 else f"{tool} ×{n}" for tool, n in f.path)
        if f.calls == 1:
            return f"Its one call was {f.last_call}."
        return (
            f"No call failed on the way: {way}."
            if not f.failed_calls
            else f"The way it went: {way}."
        )

    def origin(self, o: Origin) -> str:
        tools = list(dict.fromkeys(tool for _, _, tool in o.from_tools))[:2]
        parts = [
            f"took {listed([n for n, _, t in o.from_tools if t == tool])} from what {tool} returned"
            for tool in tools
        ]
        if o.from_user:
            parts.append(
                f"{'' if parts else 'took '}{listed([n for n, _ in o.from_user[:4]])} from the user's own words"
            )
        text = f"{o.call} ({o.event}) {listed(parts)}." if parts else ""
        if not text and o.writes:
            text = f"What it changed in the end was {o.call} ({o.event})."
        return text + (f" The user had agreed first: “{o.confirmed}”" if o.confirmed else "")

    def slow(self, s: Slow) -> str:
        return f"The slowest step was {s.call} ({s.event}): {s.seconds:.3g} s, {round(100 * s.share)}% of the measured time."

    def talk(self, d: Dialogue, outcome: OutcomeType) -> str:
        text = (
            f"A conversation of {number(d.turns)} turns about {d.topic}"
            if d.topic
            else f"A conversation of {number(d.turns)} turns"
        )
        if d.ratings:
            return text + f", rated {', '.join(f'{n} {v:g}' for n, v in d.ratings)}."
        return text + f", outcome {outcome.value}."

    def talk_manner(self, d: Dialogue, won: bool) -> str:
        text = f"The agent ended {number(d.asked_back)} of {number(d.replies)} replies with a question and took up the user's words in {number(d.taken_up)}"
        text += f" ({', '.join(d.words[:3])})." if d.words else "."
        if d.repeated:
            text += f" It said {_quoted([p for p, _ in d.repeated])} in {number(d.repeated[0][1])} replies."
        if d.unhappy:
            text += f" The user objected ({d.unhappy_event}): “{d.unhappy}”"
            text += f" That was after: “{d.before_unhappy}”" if d.before_unhappy else ""
        elif d.drew and len(d.drew) > 24:
            text += f" The user wrote most in reply to ({d.drew_event}): “{d.drew}”"
        return text

    def unexplained(self, f: Findings, outcome: OutcomeType) -> str:
        text = f"The run ended as {outcome.value} and the trace does not say why"
        if f.calls and not f.failed_calls:
            text += f": {'its one call was' if f.calls == 1 else f'all {number(f.calls)} calls were'} accepted"
        if f.writes > 1:
            return (
                text
                + f". It changed something {number(f.writes)} times, first with {f.first_write} ({f.first_write_event}), last with {f.last_write} ({f.last_write_event})."
            )
        if f.last_write:
            return text + f". The one thing it changed was {f.last_write} ({f.last_write_event})."
        if f.last_said:
            return text + f". It last said ({f.last_said_event}): {_stop(f.last_said)}"
        return text + "."

    def closing(self, f: Findings) -> str:
        return f"It closed with ({f.last_said_event}): {_stop(f.last_said)}"

    def stated(self, message: str, event: str | None) -> str:
        return f"The error reported for the run: {_stop(message)}" + (
            f" The last step in the trace is {event}." if event else ""
        )
