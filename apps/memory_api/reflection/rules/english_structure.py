"""Sentences in English about agents, outputs and where values come from."""

# ruff: noqa: E501 - each sentence is on one line, so that it can be reviewed

from __future__ import annotations

from memory_api.reflection.rules.english_phrases import (
    code,
    codes,
    counted,
    listed,
    quote,
    quoted,
)
from memory_api.trace_analysis.structure import (
    AgentTeam,
    AnswerOrigin,
    Divergence,
    DivergenceKind,
    OmittedConstraint,
    RepeatedMessage,
    RepeatedResult,
    TruncatedOutput,
    UnresolvedOutput,
    UnsupportedStatement,
    UnusedResult,
)

_DIVERGENCES: dict[DivergenceKind, str] = {
    "misread": "{who} states {stated}. In the table of {d.source_event_id}, that cell contains {found}.",
    "stale_file": "{who} names the file {stated} and not the newer file {found}, which first occurs in {d.source_event_id}.",
    "altered_number": "{who} states {stated}, which occurs in no earlier event. {d.source_event_id} contains {found}.",
    "altered_unit": "{who} states {stated}. {d.source_event_id} contains {found}.",
    "substituted": "{who} contains {stated}, which occurs in no earlier event, and not {found} of the task.",
    "from_statement": "{who} states values that occur in no earlier event, and {d.source_event_id} uses them: {stated}.",
    "without_call": "{who} states values that occur in no earlier event, and had made no call: {stated}.",
    "partial_view": "Output {d.source_event_id} says {found}. No later output says that it shows a later part.",
    "unopened": "{who} answered a request that refers to {stated} (listed in {d.source_event_id}). No call names it.",
    "unread_files": "Output {d.source_event_id} lists {d.found} files of one type. Later calls name {d.stated} of them.",
    "typed_in": "The program of {who} contains values of earlier events and names no file. An earlier program, which names {found}, failed ({d.source_event_id}).",
    "passed_over": "The expected answer {found} occurs in {d.source_event_id}. {who} states {stated}.",
    "ignored_objection": "{d.source_event_id} says: {quote} {who} repeats {stated}.",
    "stalled_call": "At least three calls of {d.agent} from {d.event_id} to {d.source_event_id} are equal: {stated}.",
    "stalled_output": "At least three calls of {d.agent} from {d.event_id} to {d.source_event_id} have outputs that start alike: {found}.",
}

DIVERGENCE_STRATEGIES: dict[DivergenceKind, str] = {
    "misread": "Before you report a value of a table, read it again by the label of its row and by the label of its column.",
    "stale_file": "Before you hand over a file, compare its name with the newest version that another step reports.",
    "altered_number": "When you hand over a number, copy it from the event that contains it.",
    "altered_unit": "When you report a measured value, copy its unit from the source. Convert it in a separate step.",
    "substituted": "Before a call or a program, compare its years and limits with the task.",
    "from_statement": "Before you use a value that another agent stated without a source, look it up.",
    "without_call": "Before you state a fact that others will use, look it up with a tool.",
    "partial_view": "When an output says that it shows a part, read the other parts before you count or summarize.",
    "unopened": "When you are asked to check a source, open it before you confirm anything.",
    "unread_files": "Before you report on a set of files, compare the files that you opened with the list of all files.",
    "typed_in": "When a file cannot be opened, read it in another way. Do not type in the rows of a preview.",
    "ignored_objection": "When another agent objects to a value, check the value again before you report it.",
    "stalled_call": "When a call was sent twice without a new result, take a different step.",
    "stalled_output": "When several calls return nothing new, use another source or another tool.",
}


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

    def divergence(self, d: Divergence) -> str:
        who = f"{d.agent} ({d.event_id})"
        stated, found = quoted([d.stated]), quoted([d.found])
        template = _DIVERGENCES[d.kind]
        return template.format(d=d, who=who, stated=stated, found=found, quote=quote(d.found))

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
