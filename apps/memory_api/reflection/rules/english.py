"""Sentences of a reflection in English."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from collections.abc import Sequence

from memory_api.reflection.rules.english_phrases import (
    changed,
    code,
    codes,
    counted,
    differs,
    expected,
    failed,
    listed,
    quote,
    quoted,
    stop,
)
from memory_api.reflection.rules.english_structure import EnglishStructure
from memory_api.trace_analysis.arguments import is_named
from memory_api.trace_analysis.failures import is_exit_code
from memory_api.trace_analysis.findings import (
    ArgumentOrigin,
    AttemptContrast,
    Crash,
    FailedAssertion,
    FailedCall,
    FailureStreak,
    FinalAnswer,
    Findings,
    LookupHop,
    MissingOutput,
    Refusal,
    RepairedCall,
    RepeatedAttempt,
    RepeatedCall,
    UnconfirmedChange,
)
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.trace_analysis.structure import Dialogue, SlowestCall
from memory_api.traces.schemas import OutcomeType


class EnglishNarrative(EnglishStructure):
    """Implements `NarrativeLanguage`."""

    space = " "

    def opening(self, task: str, outcome: OutcomeType | None) -> str:
        result = f"Outcome: {outcome.value}." if outcome else ""
        return f"Task: {stop(task)} {result}".strip() if task else result

    def crash(self, c: Crash) -> str:
        if c.is_of_call:
            text = f"{code(c.preceding_call or '')} ({c.preceding_call_event_id}) {failed(c.message, f'failed with the error event {c.event_id}')}"
        elif c.message:
            text = f"The last error event ({c.event_id}) reports: {quote(c.message)}"
        else:
            text = f"The last error event ({c.event_id}) has no message."
        if c.location:
            text += f" The traceback ends in {code(c.location)}."
        if c.expected_type and c.actual_type:
            text += f" A value of type {code(c.expected_type)} was required, and the input type was {code(c.actual_type)}."
        if c.is_of_call:
            return text
        if c.preceding_call:
            return (
                text
                + f" The last tool call before it was {code(c.preceding_call)} ({c.preceding_call_event_id})."
            )
        return text + " The trace contains no tool call before this event."

    def answered(self, a: FinalAnswer, won: bool) -> str:
        if not a.given_answer:
            return f"The run ended without an answer. The expected answer is {quote(a.expected_answer or '')}"
        where = f" ({a.event_id})" if a.event_id else ""
        if a.is_correct is None:
            text = f"The answer was “{a.given_answer}”{where}."
        else:
            verdict = "correct" if a.is_correct else "wrong"
            text = f"The environment judged the answer “{a.given_answer}”{where} {verdict}."
        if a.is_correct is True or (won and a.relation_to_expected in (None, "same", "unknown")):
            return text + self._source_of(a)
        return f"{text} {self._expected(a)}"

    def _expected(self, a: FinalAnswer) -> str:
        if a.expected_answer is None:
            return "The trace does not contain the correct answer."
        if a.relation_to_expected == "same":
            return f"It differs from the expected answer “{a.expected_answer}” only in form (case, articles, punctuation, or plural)."
        if a.relation_to_expected == "contains_expected":
            return f"It contains the expected answer “{a.expected_answer}” and additional words."
        if a.relation_to_expected == "part_of_expected":
            return f"It is only a part of the expected answer “{a.expected_answer}”."
        return f"The expected answer is {quote(a.expected_answer)}"

    def _source_of(self, a: FinalAnswer) -> str:
        if a.given_answer_call:
            return f" The response to {code(a.given_answer_call)} ({a.given_answer_event_id}) contains this answer."
        return " No tool response contains this answer word for word." if a.is_searched else ""

    def answer_seen(self, a: FinalAnswer) -> str:
        text = f"The response to {code(a.expected_answer_call or '')} ({a.expected_answer_event_id}) contains the expected answer."
        if a.given_answer_event_id is None:
            return text + " No tool response contains the given answer."
        if a.given_answer_event_id == a.expected_answer_event_id:
            return text + " The same response also contains the given answer."
        return text

    def answer_unseen(self, a: FinalAnswer) -> str:
        if a.given_answer_event_id is None:
            which = "the given or the expected answer" if a.expected_answer else "the given answer"
            return f"No tool response contains {which} word for word."
        text = f"The response to {code(a.given_answer_call or '')} ({a.given_answer_event_id}) contains the given answer"
        if a.expected_answer is None:
            return text + "."
        text += "; no tool response contains the expected answer."
        if a.unsearched_names:
            text += f" No call mentions {quoted(a.unsearched_names, 'or')} from the question."
        return text

    def no_calls(self) -> str:
        return "The trace contains no tool call."

    def reasoning(self, a: FinalAnswer) -> str:
        where = f" ({a.reasoning_event_id})" if a.reasoning_event_id else ""
        return f"The agent's last message before the answer{where}: {quote(a.reasoning)}"

    def ending(self, f: Findings) -> str:
        last = code(f.last_call or "")
        text = f"The trace ends with tool call {f.call_count}, {last} ({f.last_call_event_id}); no message or answer follows."
        if f.last_failure_message and not f.failure_streaks:
            text += f" This call {failed(f.last_failure_message)}"
        return text

    def streak(self, s: FailureStreak) -> str:
        more = ", …" if s.count > len(s.event_ids[:3]) else ""
        calls = f"{code(s.tool)} calls" if s.tool else "calls"
        events = f"({', '.join(s.event_ids[:3])}{more})"
        if s.is_reported:
            text = f"{s.count} {calls} failed with no successful call of this tool between them {events}: {quoted(s.tried_arguments[:4] or s.messages)}."
        else:
            text = f"{s.count} {calls} in a row {events} returned {stop(quoted(s.messages, 'or'))}"
            text += (
                f" Their arguments include {quoted(s.tried_arguments[:4])}."
                if s.tried_arguments
                else ""
            )
        return text + (
            f" All arguments contain {quoted(list(dict.fromkeys(s.shared_words.split()))[:6])}."
            if s.shared_words and len(s.tried_arguments) > 1
            else ""
        )

    def unused_suggestions(self, s: FailureStreak) -> str:
        if s.quoted_argument:
            return f"The failed argument {code(s.quoted_argument)} equals a suggested entry except for its quotation marks."
        used = "no call used it" if len(s.untried_alternatives) == 1 else "no call used any of them"
        return f"The responses suggested {quoted(s.untried_alternatives)}; {used}."

    def repeat(self, r: RepeatedCall) -> str:
        more = ", …" if r.count > len(r.event_ids[:3]) else ""
        end = " and failed each time" if r.failed_count == r.count else ""
        text = f"{code(r.call)} was sent {r.count} times unchanged{end} ({', '.join(r.event_ids[:3])}{more})."
        if not r.message:
            return text
        return f"{text} The last one {failed(r.message, 'ended' if is_exit_code(r.message) else 'reported')}"

    def departures(self, d: Sequence[ActionDeviation]) -> str:
        parts: list[str] = []
        for item in d[:3]:
            if item.kind == "changed":
                wrong = listed([expected(c) for c in item.changes[:3]])
                parts.append(f"{code(item.tool)} ({item.event_id}) was called with {wrong}.")
            elif item.kind == "extra":
                parts.append(
                    f"{code(item.call)} ({item.event_id}) is not among the expected calls."
                )
        missing = [item.call for item in d if item.kind == "missing"]
        if missing:
            more = [f"{len(missing) - 2} more"] if len(missing) > 2 else []
            calls = "This expected call was" if len(missing) == 1 else "These expected calls were"
            shown = [*map(code, missing[:2]), *more]
            parts.append(f"{calls} not made: {listed(shown)}.")
        return " ".join(parts)

    def missing_outputs(self, u: Sequence[MissingOutput]) -> str:
        text = f"No message of the agent contains the expected output {quoted([x.expected_output for x in u[:3]], 'or')}."
        if u[0].closest_message:
            text += f" The last message with a number ({u[0].event_id}) says: {quote(u[0].closest_message)}"
        return text

    def refusal(self, r: Refusal) -> str:
        if r.kind == "handed_over":
            return f"A call that hands the request over ({r.event_id}) states: {quote(r.quote)}"
        text = (
            f"The reply to “{r.request}” ({r.event_id})"
            if len(r.request) > 24
            else f"Message {r.event_id}"
        )
        text += f" contains a refusal phrase: {quote(r.quote)}"
        return text + (f" The agent then called {code(r.later_call)}." if r.later_call else "")

    def unconfirmed(self, u: UnconfirmedChange) -> str:
        return f"{code(u.tool)} ({u.event_id}) follows the user message “{u.user_message}”, in which no consent phrase was found. The instructions state: {quote(u.consent_rule)}"

    def assertions(self, a: Sequence[FailedAssertion]) -> str:
        first = a[0]
        name = f"Test {code(first.test)} failed" if first.test else "A test failed"
        if first.expected and first.actual:
            text = f"{name}: expected {code(first.expected)}, got {code(first.actual)}."
        else:
            text = f"{name}: {quote(first.message)}" if first.message else f"{name}."
        others = [x.test for x in a[1:4]]
        return text + (f" Other failing tests: {codes(others)}." if others else "")

    def unrepaired(self, f: FailedCall, more: int) -> str:
        if f.failure_source == "message":
            return f"The message after {code(f.call)} ({f.event_id}) says: {quote(f.message)}"
        if f.failure_source == "wording":
            return f"The response to {code(f.call)} ({f.event_id}) is: {quote(f.message)}"
        text = f"{code(f.call)} ({f.event_id}) {failed(f.message) if f.message else 'failed.'}"
        is_last_word = f.tool and not f.tool_succeeded_later
        text += f" No later {code(f.tool)} call succeeded." if is_last_word else ""
        return text + (f" {counted(more, 'other call')} also failed." if more > 0 else "")

    def invented(self, f: FailedCall) -> str:
        values = "value" if len(f.ungrounded_arguments) == 1 else "values"
        earlier = "No earlier event"
        if f.ungrounded_event_id not in (None, f.event_id):
            earlier = f"No event before {f.ungrounded_event_id}"
        return f"{earlier} contains the argument {values} {codes(f.ungrounded_arguments, 'or')}."

    def retry(self, r: RepairedCall) -> str:
        if (
            r.argument_changes
            and len(r.argument_changes) <= 3
            and all(is_named(c) for c in r.argument_changes)
        ):
            return self._retry_with_values(r)
        if r.failure_count > 1 and r.tool:
            text = f"{code(r.tool)} {_failed(r)} {r.failure_count} times, {failed(r.message, f'last as {code(r.failed_call)} ({r.failed_event_id})')}"
        else:
            text = f"{code(r.failed_call)} ({r.failed_event_id}) {failed(r.message, _failed(r))}"
        if not r.argument_changes:
            after = f" after {codes(r.write_calls_between)}" if r.write_calls_between else ""
            return f"{text} The same call{after} ({r.event_id}) returned no detected error."
        text += (
            f" The next call without a detected error was {code(r.successful_call)} ({r.event_id})"
        )
        if r.used_alternative:
            return text + "; a failed response had suggested this entry."
        text += f": {listed([changed(c) for c in r.argument_changes[:3]])}."
        return text + (
            f" {code(r.source_tool)} had returned the new value." if r.source_tool else ""
        )

    def _retry_with_values(self, r: RepairedCall) -> str:
        times = f" {r.failure_count} times, last" if r.failure_count > 1 else ""
        old = [f"{c.name}={c.before}" for c in r.argument_changes if c.before]
        new = [f"{c.name}={c.after}" for c in r.argument_changes if c.after]
        dropped = [c.name for c in r.argument_changes if not c.after]
        first = (
            f"with {codes(old)}"
            if old
            else f"without {codes([c.name for c in r.argument_changes])}"
        )
        then = [f"with {codes(new)}"] if new else []
        then += [f"without {codes(dropped, 'or')}"] if dropped else []
        via = f", a value that {code(r.source_tool)} had returned" if r.source_tool else ""
        name = code(r.tool) if r.tool else "The call"
        verb = f"{_failed(r)}{times} {first} ({r.failed_event_id})"
        return f"{name} {failed(r.message, verb)} The next call without a detected error ({r.event_id}) was made {listed(then)}{via}."

    def retry_with_wrong_arguments(self, r: RepairedCall) -> str:
        return f"The {code(r.tool)} call before it ({r.failed_event_id}) {failed(r.message, _failed(r))} In {r.event_id}, {listed([changed(c) for c in r.argument_changes[:3]])}."

    def contrast(self, c: AttemptContrast) -> str:
        other = "failed" if c.this_succeeded else "successful"
        latest = f"The latest {other} attempt"
        if c.other_answer and not c.calls_only_in_this and not c.calls_only_in_other:
            return f"{latest} made no other calls and answered {quote(c.other_answer)}"
        if c.differing_arguments:
            where = f" than this run ({c.event_id})" if c.event_id else ""
            return f"{latest} called {code(c.compared_tool or '')} with other arguments{where}: {listed([differs(x) for x in c.differing_arguments[:2]])}."
        if not c.this_succeeded:
            if c.calls_only_in_other:
                return f"{latest} called {codes(c.calls_only_in_other[:2])}; this run did not."
            return f"{latest} did not call {codes(c.calls_only_in_this[:2], 'or')}."
        many = latest if c.other_attempt_count == 1 else "No compared failed attempt"
        if c.calls_only_in_this:
            never = "did not call" if c.other_attempt_count == 1 else "called"
            where = f" (here first in {c.event_id})" if c.event_id else ""
            text = f"{many} {never} {codes(c.calls_only_in_this[:2], 'or')}{where}"
            return text + (
                f"; {'it' if c.other_attempt_count == 1 else 'the latest one'} called {codes(c.calls_only_in_other[:2])}."
                if c.calls_only_in_other
                else "."
            )
        return f"{latest} also called {codes(c.calls_only_in_other[:2])}."

    def identical_attempts(self, a: RepeatedAttempt, won: bool, lesson: bool) -> str:
        text = f"{counted(a.earlier_count, 'earlier attempt')} made the same calls in the same order with the same outcome."
        return text + (
            " The agent was given a stored lesson in this run." if lesson and not won else ""
        )

    def hops(self, hops: Sequence[LookupHop]) -> str:
        first = hops[0]
        text = f"The response to {code(first.source_call)} contains “{first.name}”, which the question does not mention; the agent then called {code(first.call)} ({first.event_id})."
        if len(hops) > 1:
            text += f" It found and searched “{hops[1].name}” in the same way."
        return text

    def path(self, f: Findings) -> str:
        if f.call_count == 1:
            text = f"The run made 1 tool call: {code(f.last_call or '')}."
        else:
            way = " → ".join(tool if n == 1 else f"{tool} ×{n}" for tool, n in f.tool_sequence)
            rest = " → …" if sum(n for _, n in f.tool_sequence) < f.call_count else ""
            text = f"The run made {f.call_count} tool calls: {way}{rest}."
        return text

    def origin(self, o: ArgumentOrigin) -> str:
        tools = list(dict.fromkeys(tool for _, _, tool in o.from_tools))[:2]
        found = [
            ([n for n, _, t in o.from_tools if t == tool], f"a {code(tool)} response")
            for tool in tools
        ]
        if o.from_user:
            found.append(([n for n, _ in o.from_user[:4]], "the user's messages"))
        parts = [
            f"{codes(n)} {'appears' if len(n) == 1 else 'appear'} in {place}" for n, place in found
        ]
        text = f"Values in {code(o.call)} ({o.event_id}): {'; '.join(parts)}." if parts else ""
        if not text and o.is_write:
            text = f"The last call that changes data was {code(o.call)} ({o.event_id})."
        if not o.user_confirmation:
            return text
        return f"{text} The user message before it starts with a confirmation: {quote(o.user_confirmation)}"

    def slow(self, s: SlowestCall) -> str:
        return f"The slowest call was {code(s.call)} ({s.event_id}): {s.seconds:.3g} s, {round(100 * s.time_share)}% of the measured time."

    def dialogue(self, d: Dialogue) -> str:
        parts: list[str] = []
        for phrase, n, event_id in d.repeated_phrases:
            parts.append(f"“{phrase}” occurs in {n} replies, first in {event_id}.")
        if d.dissatisfied_message:
            parts.append(
                f"The user wrote ({d.dissatisfied_event_id}): {quote(d.dissatisfied_message)}"
            )
            if d.reply_before_dissatisfaction:
                parts.append(
                    f"The reply before it ({d.reply_before_dissatisfaction_event_id}): {quote(d.reply_before_dissatisfaction)}"
                )
        if parts and d.ratings:
            parts.append(f"Ratings: {', '.join(f'{n} {v:g}' for n, v in d.ratings)}.")
        return " ".join(parts)

    def reported_error(self, message: str, event: str | None) -> str:
        text = f"The error reported for the run: {quote(message)}"
        return text + (f" The last event of the trace is {event}." if event else "")


def _failed(r: RepairedCall) -> str:
    """Only a report of the tool shows a failure."""
    return "failed" if r.is_reported else "brought no result"
