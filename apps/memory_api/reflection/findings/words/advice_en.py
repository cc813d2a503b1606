"""Rules for another run, in English."""

# ruff: noqa: E501 - a sentence is easier to judge on one line

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apps.memory_api.playbook.rolls import with_roll
from apps.memory_api.reflection.findings.schemas import (
    Again,
    Answer,
    Assertion,
    Contrast,
    Crash,
    Departure,
    Dialogue,
    Failure,
    Hop,
    Origin,
    Refusal,
    Repeat,
    Retry,
    Streak,
    Unconfirmed,
    Untold,
)
from apps.memory_api.reflection.findings.words.en import listed
from apps.memory_api.reflection.findings.words.names import (
    arguments,
    in_general,
    sources,
    tool_of,
    tools,
)
from apps.memory_api.traces.arguments import MARKS, SPACE, named

_SEEN = "Seen with"
_NOT_FOUND = "When something is not found, never reword the same query again and again: check the exact name in a listing or with a shorter query, and after a second miss start from another fact of the task."
_AT_THE_EDGE = "Before a call that changes something, check that the rules allow it in this very case and that the user asked for it; before declining, look for the part or the other way that they do allow."
_ANOTHER_CHOICE = "When what the user wants is not to be had, ask which one condition may give way, change or drop that one and keep the rest."
_GUARDS = {
    "timeout": "When a call runs into a time limit, narrow or split the work before sending it again: the same call meets the same limit.",
    "rate_limit": "When too many requests are refused, wait and send fewer, larger ones instead of repeating at once.",
    "permission": "When permission is lacking, stop and get the right or another account: other arguments do not help.",
    "network": "When a server cannot be reached, check address and connection once, wait, then retry a limited number of times.",
    "syntax": "When a syntax error is reported, send the complete block again with all opening and closing lines inside the replaced range, and check the brackets first.",
    "shortage": "When amounts do not fit, recompute every part (fees, extras, number of people) from the tool's own total before asking for consent again.",
    "missing": _NOT_FOUND,
    "unavailable": "When something is not available as asked, offer the nearest other time or choice at once and keep the remaining conditions.",
    "invalid": "When input is rejected, compare each argument with the form the message names and change only the one at fault.",
    "parse": "When text written by the model is parsed as code or arguments, catch the parse error, show it to the model and ask once more instead of ending the run.",
    "double": "When two lookups are wanted, send them as two calls: one call takes everything up to the end of the line as one argument.",
    "model": "When the text exceeds what the model takes, shorten it to the parts needed before calling again.",
}


class EnglishAdvice:
    """Implements `Advice`. What is said of a tool is said of any, with the tool in a roll at the
    end: the same advice on another is the same sentence.
    """

    def drop_quotes(self, tool: str) -> str:
        rule = "When a name in quotation marks is not found, send it again without them before changing any word."
        return with_roll(rule, _SEEN, tools(tool))

    def take_offer(self, tool: str, offered: Sequence[str]) -> str:
        here = f" (here {listed(offered[:2], 'or')})" if offered else ""
        rule = f"When nothing is found but similar entries are listed, open the listed entry closest to the question{here}, written exactly as listed, instead of rewording the query."
        return with_roll(rule, _SEEN, tools(tool))

    def give_up_rewording(self, s: Streak) -> str:
        return with_roll(_NOT_FOUND, _SEEN, tools(s.tool))

    def convert(self, c: Crash) -> str:
        return f"When a result of type {c.got} is passed on where a {c.wanted} is required, convert it before handing it over; test that with one numeric result."

    def guard(self, kind: str, what: str, message: str, repeated: bool) -> str | None:
        rule = _GUARDS.get(kind)
        if rule is None:
            if not repeated:
                return None
            rule = f"When a call answers “{in_general(message)}” a second time, change the approach instead of sending it again."
        return with_roll(rule, _SEEN, tools(tool_of(what)))

    def exact_form(self, a: Answer) -> str:
        return "When an answer is checked by exact match, give just the name or phrase as the source writes it, in full and with no word added."

    def compare(self, a: Answer) -> str:
        return "When a question compares two things, write down the compared value of each with its source first, and answer only after setting them side by side."

    def weigh_candidates(self, a: Answer) -> str:
        return "When the pages read name several possible answers, test each one against every condition of the question and go back to the passage before finishing."

    def search_name(self, a: Answer) -> str:
        return f"When a question names something no call has looked up yet (here {listed(a.unsearched)}), look it up before answering from the other half."

    def read_first(self, a: Answer) -> str:
        return "When the answer about to be given stands in no response so far, search for it by name and read it there first; without that, keep looking."

    def another_reading(self, a: Answer) -> str:
        return "When the first page found seems to settle a question, check whether another person, work or place fits its wording too, and open that page before finishing."

    def settle(self, d: Departure) -> str:
        rule = "Before a call that changes something, never guess an argument: a wrong value may raise no error. Derive each from the request, the rules and the responses, and read it back to the user."
        return with_roll(rule, "Wrong before", {d.tool: arguments(d.changes)})

    def hold_back(self, d: Departure) -> str:
        return with_roll(_AT_THE_EDGE, "Called without need", tools(d.tool))

    def before_declining(self, d: Departure) -> str:
        return with_roll(_AT_THE_EDGE, "Declined too early", tools(d.tool))

    def all_parts(self, d: Sequence[Departure]) -> str:
        rule = "When a request has several parts, never close before each has its call: list the parts first and tick them off."
        return with_roll(rule, "Left out before", tools(*(x.tool for x in d[:3])))

    def tell_figure(self, u: Untold) -> str:
        return "When the user asks for an amount or a count, work it out over all items concerned, have it calculated, and say the figure itself before closing."

    def as_the_success(self, c: Contrast) -> str | None:
        if c.changes and c.tool:
            names = listed(
                list(dict.fromkeys(x.name if named(x) else "the argument" for x in c.changes[:3]))
            )
            return f"When calling {c.tool} for such a task, read {names} off a response or the user's words and check it once more: success and failure parted just there."
        used = c.tools_ours if c.we_succeeded else c.tools_theirs
        if used:
            return f"When a task like this comes up, plan {listed(used)} into the run: only the successful attempts used it."
        good, bad = (c.ours, c.theirs) if c.we_succeeded else (c.theirs, c.ours)
        if not good or not bad or "[" not in good[0]:
            return None
        return f"When a question like this one starts, begin with {good[0]} rather than {bad[0]}: there the successful and the failed attempt parted."

    def change_it(self, r: Retry) -> str | None:
        if r.took_offer:
            return self.take_offer(r.tool, ())
        if any(c.name == MARKS and (c.after or "")[:1] in "\"'" for c in r.changes):
            rule = "When an argument with spaces or braces is rejected, put the whole argument into quotation marks before changing its words."
            return with_roll(rule, _SEEN, tools(r.tool))
        if any(c.name == MARKS for c in r.changes):
            return self.drop_quotes(r.tool)
        if any(c.name == SPACE for c in r.changes):
            rule = "When the indentation is at fault, resend the same lines with the exact leading spaces of the lines around them."
            return with_roll(rule, _SEEN, tools(r.tool))
        if r.via and r.taken:
            return self._copied(r.tool, {r.taken: r.via})
        if any(named(c) for c in r.changes):
            return self._changed(r)
        only = r.changes[0] if len(r.changes) == 1 else None
        if only and only.before and not only.after:
            rule = f"When a name with an addition (here “{only.before}”) is not found, drop the addition and keep the name."
            return with_roll(rule, _SEEN, tools(r.tool))
        if only and only.after and not only.before:
            rule = f"When a bare name is not found, add what tells it apart (here “{only.after}”)."
            return with_roll(rule, _SEEN, tools(r.tool))
        return self.guard(r.kind, r.tool, r.message, False)

    def _changed(self, r: Retry) -> str:
        """Named arguments were changed, and it worked."""
        if r.kind == "unavailable":
            label = "Dropped" if all(c.after is None for c in r.changes) else "Changed"
            return with_roll(_ANOTHER_CHOICE, label, {r.tool: arguments(r.changes)})
        rule = f"When a call fails with “{in_general(r.message)}”, change only the argument at fault and leave the others as they are."
        return with_roll(rule, "At fault before", {r.tool: arguments(r.changes)})

    def look_up(self, f: Failure) -> str:
        rule = "Never make up an id or a name that a call needs: read it off an earlier response, and fetch it first when there is none."
        return with_roll(rule, "Made up before", {f.tool: [x.split("=", 1)[0] for x in f.invented]})

    def start_otherwise(self, a: Again) -> str:
        return f"When an earlier attempt at the same task failed, never open with its first call again (here {a.first_call}): start from another fact of the task, or open an entry passed over last time."

    def no_repeat(self, r: Repeat) -> str:
        rule = "When a call has brought nothing, never send it again unchanged: note the result and change the argument or the tool."
        return with_roll(rule, _SEEN, tools(r.tool))

    def ask_first(self, u: Unconfirmed) -> str:
        rule = "When the rules ask for consent, list the details of the call and wait for a plain yes before making it."
        return with_roll(rule, "Made without before", tools(u.tool))

    def follow_name(self, hops: Sequence[Hop]) -> str:
        return "When a question hides a name behind a description, find the page that names it, search that name literally next, and answer in the words of the page."

    def fill_from(self, o: Origin) -> str | None:
        if o.from_tools:
            return self._copied(o.tool, {name: tool for name, _, tool in o.from_tools})
        if o.carried:
            rule = "Do not ask again for what the user or an earlier call has given: reuse it in the next call."
            return with_roll(rule, "Reused", {o.tool: [name for name, _ in o.carried]})
        return None

    def _copied(self, tool: str, source: Mapping[str, str]) -> str:
        name = f"`{tool}`" if tool else "The call"
        rule = f"{name} takes exact values from earlier responses, so make those calls first."
        return with_roll(rule, "Copy", sources(source))

    def assertion(self, a: Assertion) -> str:
        name = a.test.split("::")[-1] if a.test else "the failing test"
        return f"When touching the code under {name}, run that test first and make it pass before widening the change."

    def talk(self, d: Dialogue, won: bool) -> str | None:
        if won:
            return None
        if d.unhappy:
            return "When a user shows displeasure, answer that point first and change the way of replying, before moving on."
        if d.replies >= 5 and d.asked_back * 4 <= d.replies:
            return "When chatting, end every second reply with a question about what the user just said."
        if d.repeated:
            return "When replying several times in a row, vary the form: a phrase the user has heard twice adds nothing."
        return None

    def stand_firm(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return "When a request lies outside what the rules and tools allow, look the case up first, then hand it over with a summary of who asks, for what, and why it cannot be done here."
        return "When the rules do not allow what a user asks, say so with the reason, hold to it when pressed, and offer what is allowed."
