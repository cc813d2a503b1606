"""Sentences in English about agents, outputs and where values come from."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from apps.memory_api.reflection.rules.english_phrases import (
    code,
    codes,
    counted,
    listed,
    quote,
    quoted,
)
from apps.memory_api.trace_analysis.structure import (
    AgentTeam,
    AnswerOrigin,
    OmittedConstraint,
    RepeatedMessage,
    RepeatedResult,
    TruncatedOutput,
    UnresolvedOutput,
    UnsupportedStatement,
    UnusedResult,
)


class EnglishStructure:
    """The structural part of `EnglishNarrative`."""

    def team(self, t: AgentTeam) -> str:
        agents = listed([f"{name} ({counted(n, 'step')})" for name, n in t.agents[:6]])
        more = f" and {len(t.agents) - 6} more" if len(t.agents) > 6 else ""
        return f"Agents: {agents}{more}. {t.last_agent} took the last step ({t.last_event_id})."

    def answer_origin(self, a: AnswerOrigin) -> str:
        what = f"The final answer {quoted([a.answer])} ({a.answer_event_id})"
        if a.value != a.answer:
            what = f"{quoted([a.value])} of the final answer ({a.answer_event_id})"
        if a.kind == "output":
            return f"{what} first occurs in output {a.first_event_id}, which follows the step of {a.author} ({a.author_event_id})."
        if a.kind == "report":
            return f"{what} first occurs in a page or file that {a.author} reports ({a.author_event_id})."
        first = f"{what} first occurs in a message of {a.author} ({a.author_event_id})"
        if a.author_event_id == a.answer_event_id:
            first = f"{what} occurs in no earlier event"
        if a.output_event_id:
            return f"{first}. Output {a.output_event_id} contains it, too."
        return f"{first}. No output and no reported page or file contains it."

    def unsupported(self, u: UnsupportedStatement) -> str:
        return f"{u.agent} ({u.event_id}) states values that occur in no earlier event: {quoted(u.values)}."

    def unresolved(self, u: UnresolvedOutput) -> str:
        result = f"ended with exit code {u.exit_code}" if u.exit_code else "printed nothing"
        text = f"The code of {u.agent} ({u.event_id}) {result} ({u.output_event_id}). No later code returned an output without an error."
        return text + (
            f" {u.next_agent} continued without code ({u.next_event_id})."
            if u.next_event_id
            else ""
        )

    def omitted(self, o: OmittedConstraint) -> str:
        return f"The task mentions {quoted(o.values)}; no later step does."

    def repeated_message(self, m: RepeatedMessage) -> str:
        more = ", …" if m.count > len(m.event_ids[:3]) else ""
        return f"{m.count} messages of {m.agent} start alike ({', '.join(m.event_ids[:3])}{more}): {quote(m.quote)}"

    def repeated_result(self, r: RepeatedResult) -> str:
        more = ", …" if r.count > len(r.event_ids[:3]) else ""
        return f"{r.count} calls returned the same text ({', '.join(r.event_ids[:3])}{more}): {codes(r.calls)}."

    def unused(self, u: UnusedResult) -> str:
        return f"No later event contains a number or a capitalized name from the response to {code(u.call)} ({u.event_id})."

    def truncated(self, t: TruncatedOutput) -> str:
        return f"The response to {code(t.call)} ({t.event_id}) says: {quote(t.quote)}"
