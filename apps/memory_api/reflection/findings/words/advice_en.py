"""Rules for another run, in English."""

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
from apps.memory_api.traces.arguments import MARKS, SPACE, named

_GUARDS = {
    "timeout": "When {what} runs into a time limit, narrow or split the work before sending it again; the same call will hit the same limit.",
    "rate_limit": "When {what} is refused for too many requests, wait and send fewer, larger requests instead of repeating at once.",
    "permission": "When {what} is refused for lack of permission, stop and get the right or another account; do not vary the arguments.",
    "network": "When {what} cannot reach its server, check address and connection once, wait, then retry a limited number of times.",
    "syntax": "When {what} reports a syntax error, send the complete block again with all opening and closing lines inside the replaced range, and check the brackets first.",
    "shortage": "When {what} says that amounts do not fit, recompute every part (fees, baggage, number of people) from the tool's own total before asking for consent again.",
    "missing": "When {what} does not find something, check the exact name or path with a listing or a shorter query before the next try.",
    "unavailable": "When {what} is not available as asked, offer the nearest other time or choice at once and keep the remaining conditions.",
    "invalid": "When {what} rejects its input, compare each argument with the form the message names and change only the one at fault.",
    "parse": "When text written by the model is parsed as code or arguments ({what}), catch the parse error, show it to the model and ask once more instead of ending the run.",
    "double": "When two lookups are wanted, send them as two calls: {what} takes everything up to the end of the line as one argument.",
    "model": "When {what} exceeds what the model takes, shorten the input to the parts needed before calling again.",
}


def _short(tool: str) -> str:
    return tool or "a call"


class EnglishAdvice:
    """Implements `Advice`."""

    def drop_quotes(self, tool: str) -> str:
        return f"When {tool} does not find a name written in quotation marks, send the name again without them before changing any word."

    def take_offer(self, tool: str, offered: Sequence[str]) -> str:
        return (
            f"When {tool} finds nothing but lists similar entries, open the listed entry closest to the question next "
            f"(here {listed(offered[:2], 'or')}) instead of rewording the same query."
        )

    def give_up_rewording(self, s: Streak) -> str:
        kept = f" around “{s.kept}”" if s.kept else ""
        return f"When two {_short(s.tool)} calls{kept} fail, do not send a third rewording: start from another fact of the task."

    def convert(self, c: Crash) -> str:
        return f"When a result of type {c.got} is passed on where a {c.wanted} is required, convert it before handing it over; test that with one numeric result."

    def guard(self, kind: str, what: str, message: str, repeated: bool) -> str | None:
        rule = _GUARDS.get(kind)
        if rule is None:
            return (
                f"When {what} answers “{message}” a second time, change the approach instead of sending it again."
                if repeated
                else None
            )
        return rule.replace("{what}", what)

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
        names = listed(
            list(dict.fromkeys(c.name if named(c) else "the argument" for c in d.changes[:3]))
        )
        return (
            f"When about to call {d.tool}, settle {names} first: derive each from the request, the rules and what the tools returned, "
            "and read it back to the user. The tool does not reject a wrong value."
        )

    def hold_back(self, d: Departure) -> str:
        return f"When a request leads towards {d.tool}, check that the rules allow it in this very case and that nothing else was asked for; if not, say so and change nothing."

    def before_declining(self, d: Departure) -> str:
        return f"When inclined to decline or hand over a request that {d.tool} could serve, look for the permitted way first (another order of steps, part of the request) and offer it."

    def all_parts(self, d: Sequence[Departure]) -> str:
        tools = listed(list(dict.fromkeys(x.tool for x in d))[:3])
        return f"When a request has several parts, keep them as a list and do not close before each has its call; look for open {tools} calls in particular."

    def tell_figure(self, u: Untold) -> str:
        return "When the user asks for an amount or a count, work it out over all items concerned, have it calculated, and say the figure itself before closing."

    def as_the_success(self, c: Contrast) -> str | None:
        if c.changes and c.tool:
            names = listed(
                list(dict.fromkeys(x.name if named(x) else "the argument" for x in c.changes[:3]))
            )
            return f"When calling {c.tool} for such a task, read {names} off a response or the user's words and check it once more: success and failure parted just there."
        tools = c.tools_ours if c.we_succeeded else c.tools_theirs
        if tools:
            return f"When a task like this comes up, plan {listed(tools)} into the run: only the successful attempts used it."
        good, bad = (c.ours, c.theirs) if c.we_succeeded else (c.theirs, c.ours)
        if not good or not bad or "[" not in good[0]:
            return None
        return f"When a question like this one starts, begin with {good[0]} rather than {bad[0]}: there the successful and the failed attempt parted."

    def change_it(self, r: Retry) -> str | None:
        if r.took_offer:
            return f"When {r.tool} finds nothing but lists similar entries, send the listed name exactly as written; that worked here with {r.after}."
        if any(c.name == MARKS and (c.after or "")[:1] in "\"'" for c in r.changes):
            return f"When {r.tool} rejects an argument that has spaces or braces, put the whole argument into quotation marks before changing its words."
        if any(c.name == MARKS for c in r.changes):
            return self.drop_quotes(r.tool)
        if any(c.name == SPACE for c in r.changes):
            return f"When {r.tool} complains about indentation, resend the same lines with the exact leading spaces of the lines around them."
        if r.via and r.taken:
            return f"When {r.tool} needs {r.taken}, take it from the response of {r.via} rather than building it from what was said."
        names = [c.name for c in r.changes[:3] if named(c)]
        if r.kind == "unavailable" and names:
            return f"When {r.tool} cannot be had as asked, propose another {listed(names)} to the user and keep the other arguments."
        if names:
            return f"When {r.tool} fails with “{r.message}”, look at {listed(names)} first and leave the other arguments as they are."
        only = r.changes[0] if len(r.changes) == 1 else None
        if only and only.before and not only.after:
            return f"When {r.tool} does not find an entry with an addition such as “{only.before}”, drop the addition and keep the name."
        if only and only.after and not only.before:
            return f"When {r.tool} fails on a bare name, add what tells it apart, such as “{only.after}”."
        return self.guard(r.kind, r.tool, r.message, False)

    def look_up(self, f: Failure) -> str:
        names = listed([x.split("=", 1)[0] for x in f.invented])
        return f"When {f.tool} needs {names}, read the value from an earlier response; if there is none, fetch it first and never compose one."

    def start_otherwise(self, a: Again) -> str:
        return f"When an earlier attempt at the same task failed, do not open with its first call again (here {a.first_call}): start from another fact of the task, or open an entry passed over last time."

    def no_repeat(self, r: Repeat) -> str:
        return f"When a {_short(r.tool)} call has brought nothing, do not send it again unchanged: note the result and change the argument or the tool."

    def ask_first(self, u: Unconfirmed) -> str:
        return f"When the rules ask for consent, list the details of {u.tool} and wait for a plain yes before calling it."

    def follow_name(self, hops: Sequence[Hop]) -> str:
        return "When a question hides a name behind a description, find the page that names it, search that name literally next, and answer in the words of the page."

    def fill_from(self, o: Origin) -> str | None:
        if o.from_tools:
            names = listed(list(dict.fromkeys(n for n, _, _ in o.from_tools))[:3])
            tools = listed(list(dict.fromkeys(t for _, _, t in o.from_tools))[:2])
            end = ", then get the user's yes before sending it" if o.confirmed else ""
            return f"When preparing {o.tool}, call {tools} first and copy {names} from the response{end}."
        if o.carried:
            return f"When going on to {o.tool}, carry over {listed([f'{n} ({v})' for n, v in o.carried])} from the earlier calls instead of asking again."
        return None

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
