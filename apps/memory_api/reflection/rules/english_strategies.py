"""Strategies in English."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory_api.reflection.rules.english_phrases import code, codes, quoted
from memory_api.reflection.rules.english_structure import DIVERGENCE_STRATEGIES
from memory_api.reflection.rules.language import (
    argument_names,
    source_entries,
    tool_entries,
    tool_of,
    without_values,
)
from memory_api.text.advice import append_tool_list
from memory_api.text.quotations import is_safe_name, safe_quotations
from memory_api.trace_analysis.arguments import QUOTES_CHANGE, WHITESPACE_CHANGE, is_named
from memory_api.trace_analysis.findings import (
    AttemptContrast,
    Crash,
    FailedAssertion,
    FailedCall,
    FailureStreak,
    FinalAnswer,
    LookupHop,
    MissingOutput,
    RepairedCall,
    RepeatedAttempt,
    RepeatedCall,
    UnconfirmedChange,
)
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.trace_analysis.structure import DivergenceKind

_OBSERVED = "Observed with"
_CHANGED = "Previously changed"
_NOT_FOUND = "If a search returns nothing, do not keep rephrasing it. Look up the exact name in a listing or use a shorter query; after two misses, start from a different fact in the task."
_OTHER_CONDITION = "When no option meets all conditions, ask the user which condition may change, then change or remove only that condition."
_BY_KIND = {
    "timeout": "When a call times out, do not send it again unchanged: narrow or split the request, or first check what it is waiting for.",
    "rate_limit": "When a call is rejected because of too many requests, wait and then send fewer requests.",
    "permission": "When a call is rejected because of a missing permission, do not retry it with other arguments. Request the permission first.",
    "network": "When a server cannot be reached, check the address, wait, and retry a limited number of times.",
    "syntax": "When a call reports a syntax error, check the brackets and resend the complete block, including its first and last lines.",
    "shortage": "When a call is rejected because an amount does not match, recompute every item from the totals that the tool returned.",
    "missing": "When a call reports that something does not exist, look up its exact name in a listing before calling again.",
    "unavailable": "When a requested option is unavailable, offer the closest available alternative and leave the other conditions unchanged.",
    "invalid": "When a call rejects its input, compare each argument with the format in the error message and change only the invalid argument.",
    "parse": "When parsing text written by a model as code or arguments, catch the parse error, show it to the model, and let it try again.",
    "model": "When a text exceeds the input limit of the model, shorten it to the required parts before calling again.",
}


class EnglishStrategies:
    """Implements `StrategyLanguage`.

    A strategy that holds for any tool names the tools in a list at its end, so the same strategy
    for another tool has the same sentence.
    """

    def after_divergence(self, kind: DivergenceKind) -> str | None:
        return DIVERGENCE_STRATEGIES.get(kind)

    def drop_quotes(self, tool: str) -> str:
        rule = "When a name in quotation marks is not found, send it without the quotation marks before changing any word."
        return append_tool_list(rule, _OBSERVED, tool_entries(tool))

    def use_suggestion(self, tool: str, offered: Sequence[str]) -> str:
        shown = safe_quotations(offered[:2])
        example = f" (in this run: {quoted(shown, 'or')})" if shown else ""
        rule = f"When a search finds nothing but suggests similar entries, open the closest suggestion{example} exactly as written instead of rephrasing the query."
        return append_tool_list(rule, _OBSERVED, tool_entries(tool))

    def stop_rephrasing(self, s: FailureStreak) -> str:
        return append_tool_list(_NOT_FOUND, _OBSERVED, tool_entries(s.tool))

    def convert(self, c: Crash) -> str:
        return f"Before passing a value of type {code(c.actual_type or '')} where the type {code(c.expected_type or '')} is required, convert it."

    def avoid_error(self, kind: str, what: str, message: str, repeated: bool) -> str | None:
        rule = _BY_KIND.get(kind)
        if rule is None:
            if not repeated:
                return None
            rule = f"{_when_failing(message)}, change its arguments or use another tool instead of sending it again."
        return append_tool_list(rule, _OBSERVED, tool_entries(tool_of(what)))

    def exact_form(self, a: FinalAnswer) -> str:
        return "When an answer is checked by exact match, give only the name or phrase as the source writes it."

    def weigh_candidates(self, a: FinalAnswer) -> str:
        return "When the responses contain several possible answers, test each one against every condition of the question before answering."

    def search_name(self, a: FinalAnswer) -> str:
        return f"When no call has searched for a name in the question (in this run: {quoted(a.unsearched_names)}), search for it before answering."

    def read_first(self, a: FinalAnswer) -> str:
        return "When no response contains the intended answer, search for it by name and read the source before answering."

    def derive_arguments(self, d: ActionDeviation) -> str:
        rule = "Before a call, take each argument from the request, the rules, or an earlier response. A wrong value may return no error."
        return append_tool_list(rule, "Previously wrong", {d.tool: argument_names(d.changes)})

    def check_before_change(self, d: ActionDeviation) -> str:
        rule = (
            "Before a call that neither the request nor the rules mention, check that it is needed."
        )
        return append_tool_list(rule, "Called in failed runs", tool_entries(d.tool))

    def before_declining(self, d: ActionDeviation) -> str:
        rule = "Before declining a request, check whether the rules allow a part of it or another way to fulfill it."
        return append_tool_list(rule, "Previously missing", tool_entries(d.tool))

    def all_parts(self, d: Sequence[ActionDeviation]) -> str:
        rule = "When a request has several parts, do not finish before each part has its call. List the parts first."
        return append_tool_list(rule, "Previously missing", tool_entries(*(x.tool for x in d[:3])))

    def state_figure(self, u: MissingOutput) -> str:
        return "When the user asks for an amount or a count, calculate it over all relevant items and state the number before finishing."

    def follow_success(self, c: AttemptContrast) -> str | None:
        if c.differing_arguments and c.compared_tool:
            names = list(dict.fromkeys(x.name for x in c.differing_arguments[:3] if is_named(x)))
            which = codes(names) if names else "the argument"
            these = "these arguments" if len(names) > 1 else "this argument"
            return f"Before calling {code(c.compared_tool)}, take {which} from an earlier response or the user's message. Successful and failed attempts at this task differed in {these}."
        used = c.tools_only_in_this if c.this_succeeded else c.tools_only_in_other
        if used:
            return f"When attempting this task, call {codes(used)}. Only successful attempts at this task used {'it' if len(used) == 1 else 'them'}."
        good, bad = (
            (c.calls_only_in_this, c.calls_only_in_other)
            if c.this_succeeded
            else (c.calls_only_in_other, c.calls_only_in_this)
        )
        if not good or not bad or "[" not in good[0]:
            return None
        return f"When attempting this task, call {code(good[0])} instead of {code(bad[0])}. The compared attempts at this task differed in these calls."

    def change_arguments(self, r: RepairedCall) -> str | None:
        if r.used_alternative:
            return self.use_suggestion(r.tool, ())
        if any(
            c.name == QUOTES_CHANGE and (c.after or "")[:1] in "\"'" for c in r.argument_changes
        ):
            rule = "When an argument without quotation marks is rejected, put the whole argument in quotation marks before changing its words."
            return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))
        if any(c.name == QUOTES_CHANGE for c in r.argument_changes):
            return self.drop_quotes(r.tool)
        if any(c.name == WHITESPACE_CHANGE for c in r.argument_changes):
            rule = "When a text with several lines is rejected, resend it with the indentation of the surrounding lines before changing its words."
            return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))
        if r.source_tool and r.sourced_argument:
            return self._copied(r.tool, {r.sourced_argument: r.source_tool})
        if any(is_named(c) for c in r.argument_changes):
            return self._changed(r)
        only = r.argument_changes[0] if len(r.argument_changes) == 1 else None
        if only and only.before and not only.after:
            rule = f"When a name with an addition (in this run: “{only.before}”) is not found, drop the addition and send the name alone."
            return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))
        if only and only.after and not only.before:
            rule = f"When a name alone is not found, add a distinguishing term (in this run: “{only.after}”)."
            return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))
        return self.avoid_error(r.kind, r.tool, r.message, False)

    def _changed(self, r: RepairedCall) -> str:
        """Named arguments changed, and the next call returned no detected error."""
        names = {r.tool: argument_names(r.argument_changes)}
        if all(c.before is None for c in r.argument_changes):
            rule = f"{_when_failing(r.message)}, check whether it lacks an argument, and add only that argument."
            return append_tool_list(rule, "Previously added", names)
        if r.kind == "unavailable":
            removed = all(c.after is None for c in r.argument_changes)
            return append_tool_list(
                _OTHER_CONDITION, "Previously removed" if removed else _CHANGED, names
            )
        rule = f"{_when_failing(r.message)}, change only the argument that the message concerns and leave the others unchanged."
        return append_tool_list(rule, _CHANGED, names)

    def look_up_value(self, f: FailedCall) -> str:
        rule = "Before a call that needs an ID or a name, do not invent the value: read it from an earlier response, or fetch it first."
        names = [x.split("=", 1)[0] for x in f.ungrounded_arguments]
        names = [name for name in names if is_safe_name(name)]
        return append_tool_list(rule, "Previously without source", {f.tool: names})

    def start_differently(self, a: RepeatedAttempt) -> str:
        return f"When an earlier attempt at the same task failed, do not make exactly the same calls again (in this run: first {code(a.first_call)}). Change at least one of them."

    def no_repeat(self, r: RepeatedCall) -> str:
        rule = "When a call fails, do not send it again unchanged. Change an argument or use another tool."
        return append_tool_list(rule, _OBSERVED, tool_entries(r.tool))

    def ask_first(self, u: UnconfirmedChange) -> str:
        rule = "When the instructions require consent, list the details of the call and wait for an explicit yes before making it."
        return append_tool_list(
            rule, "Previously called without a consent phrase", tool_entries(u.tool)
        )

    def follow_name(self, hops: Sequence[LookupHop]) -> str:
        return "When a question describes a name without stating it, find a page that contains the name and search for that name next."

    def _copied(self, tool: str, source: Mapping[str, str]) -> str:
        call = f"calling {code(tool)}" if tool else "the call"
        rule = f"Before {call}, copy exact argument values from the responses of earlier calls."
        return append_tool_list(rule, "Sources", source_entries(source))

    def run_failing_test(self, a: FailedAssertion) -> str:
        name = code(a.test.split("::")[-1]) if a.test else "the failing test"
        return f"Before finishing a change to the code that {name} covers, run this test and make it pass."

    def vary_phrases(self) -> str:
        return "When writing several replies in one conversation, do not repeat the same phrase."

    def resolve_failed_code(self) -> str:
        return "When code fails or prints nothing, do not continue with assumed values. Correct the code or use another source first."

    def verify_answer(self) -> str:
        return "Before giving a final answer that no output contains, compute it or look it up, and compare the result."

    def change_repeated_step(self) -> str:
        return (
            "When the same step has been taken twice without a new result, take a different step."
        )


def _when_failing(message: str) -> str:
    quotation = without_values(message)
    return f"When a call fails with “{quotation}”" if quotation else "When a call fails"
