"""The typed findings of trace analysis, given to the rules engine and to a model.

Every text field is a short excerpt; every `…event_id` is the ID of an event of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, cast

from memory_api.trace_analysis.answer_comparison import AnswerRelation
from memory_api.trace_analysis.arguments import ArgumentChange
from memory_api.trace_analysis.failures import FailureSource
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.trace_analysis.structure import (
    AgentTeam,
    AnswerOrigin,
    Dialogue,
    Divergence,
    OmittedConstraint,
    RepeatedMessage,
    RepeatedResult,
    SlowestCall,
    TruncatedOutput,
    UnresolvedOutput,
    UnsupportedStatement,
    UnusedResult,
)
from memory_api.traces.schemas import ErrorCategory

ValueSource = Literal["user", "tool", "instructions", "agent", "task", "none"]


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed. `event_id` is the call, `response_event_id` the event that reports the
    failure.

    `alternatives` are the values that the response offered. `ungrounded_arguments` are arguments
    (`name=value`) that occur in no event before `ungrounded_event_id`: this call, or an earlier
    failed call of the tool with the same argument.
    """

    event_id: str
    response_event_id: str | None
    tool: str
    call: str
    kind: str
    message: str
    category: ErrorCategory
    failure_source: FailureSource = "tool"
    alternatives: tuple[str, ...] = ()
    ungrounded_arguments: tuple[str, ...] = ()
    ungrounded_event_id: str | None = None
    tool_succeeded_later: bool = False


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """The same call (tool and arguments) made `count` times, at least 2. `message` is that of the
    last call if it failed.
    """

    event_id: str
    event_ids: tuple[str, ...]
    tool: str
    call: str
    count: int
    failed_count: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class FailureStreak:
    """At least 3 failed calls of one tool without a successful call of it between them.

    `shared_words` are the words that all arguments contain. `untried_alternatives` are values that
    responses offered and no call used. `quoted_argument` is an argument in quotation marks that a
    response offered without them. `is_reported`: the tool reported all failures; otherwise some are
    known by the wording of the response.
    """

    event_id: str
    event_ids: tuple[str, ...]
    tool: str
    count: int
    shared_words: str
    tried_arguments: tuple[str, ...]
    untried_alternatives: tuple[str, ...]
    quoted_argument: str | None
    messages: tuple[str, ...] = ()
    is_reported: bool = True


@dataclass(frozen=True, slots=True)
class RepairedCall:
    """A failed call and a later successful call of the same tool.

    `source_tool` was called between the two; its response contains the new value of
    `sourced_argument`, one of the changed arguments. `used_alternative`: the successful argument is
    one that a failed response offered. `is_reported`: see `FailureStreak`.
    """

    failed_event_id: str
    event_id: str
    tool: str
    failure_count: int
    message: str
    kind: str
    failed_call: str
    successful_call: str
    argument_changes: tuple[ArgumentChange, ...]
    sourced_argument: str | None
    source_tool: str | None
    used_alternative: bool
    write_calls_between: tuple[str, ...] = ()
    is_reported: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that declines a request, or a handover to a person. `kind` is `declined` or
    `handed_over`.

    `later_call` is a later successful call about the same thing: its arguments contain
    `shared_value`, an identifier that the request or the refusal names. `repeated_event_ids` are
    later messages that decline the same again.
    """

    event_id: str
    kind: str
    quote: str
    request: str
    later_call: str | None = None
    request_event_id: str | None = None
    later_call_event_id: str | None = None
    shared_value: str | None = None
    repeated_event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnconfirmedChange:
    """A write call although the instructions require the user's consent and the last user message
    gives none.
    """

    event_id: str
    tool: str
    consent_rule: str
    user_message: str


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """The final answer and how it compares with the expected one.

    `is_correct` is the environment's response, None if there was none. `expected_answer_event_id`
    and `expected_answer_call`: the call whose response contains the expected answer.
    `given_answer_event_id` and `given_answer_call`: the call whose response contains the given one.
    `unsearched_names`: names in the question that no call searched for. `is_searched`: all
    responses were searched for both answers.
    """

    event_id: str | None
    given_answer: str
    is_correct: bool | None = None
    expected_answer: str | None = None
    relation_to_expected: AnswerRelation | None = None
    expected_answer_event_id: str | None = None
    expected_answer_call: str | None = None
    given_answer_event_id: str | None = None
    given_answer_call: str | None = None
    reasoning: str = ""
    reasoning_event_id: str | None = None
    unsearched_names: tuple[str, ...] = ()
    is_searched: bool = True


@dataclass(frozen=True, slots=True)
class MissingOutput:
    """An expected output that no message to the user contains. `closest_message` is the sentence
    that comes closest.
    """

    expected_output: str
    event_id: str | None
    closest_message: str


@dataclass(frozen=True, slots=True)
class FailedAssertion:
    """A failed test of the test report."""

    test: str
    message: str
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True)
class Crash:
    """The error that ended the run. `location` is the innermost frame outside libraries.
    `is_of_call`: it is the response to the preceding call; otherwise the agent or its environment
    reported it.
    """

    event_id: str
    message: str
    location: str
    kind: str
    category: ErrorCategory
    preceding_call_event_id: str | None = None
    preceding_call: str | None = None
    expected_type: str | None = None
    actual_type: str | None = None
    is_of_call: bool = False


@dataclass(frozen=True, slots=True)
class AttemptContrast:
    """This attempt compared with an attempt at the same task with the opposite outcome.

    `event_id`: this attempt's first call that the other one does not have. `compared_tool` and
    `differing_arguments`: a write call that both made with different arguments (`before` is the
    failed attempt, `after` the successful one). `other_answer`: the other attempt's answer, if it
    differs. `tool_without_quotes`: a tool to which the failed attempt passed an argument in
    quotation marks and the successful one the same argument without them.
    """

    this_succeeded: bool
    trace_id: str | None
    event_id: str | None
    calls_only_in_this: tuple[str, ...]
    calls_only_in_other: tuple[str, ...]
    tools_only_in_this: tuple[str, ...]
    tools_only_in_other: tuple[str, ...]
    compared_tool: str | None = None
    differing_arguments: tuple[ArgumentChange, ...] = ()
    other_attempt_count: int = 1
    other_answer: str | None = None
    tool_without_quotes: str | None = None
    write_tool_only_in_failed: str | None = None


@dataclass(frozen=True, slots=True)
class RepeatedAttempt:
    """Earlier attempts that made exactly the same calls and had the same outcome."""

    earlier_count: int
    trace_id: str | None
    first_call: str


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The first event that contains the value of an argument. `source`: user, tool (a response),
    instructions, agent (a message or a call), or none, if no earlier event contains it. `tool` is
    the tool of a response or a call.
    """

    name: str
    value: str
    source: ValueSource
    event_id: str | None = None
    tool: str = ""


@dataclass(frozen=True, slots=True)
class ArgumentOrigin:
    """Where the arguments of the deciding call came from: from the event that contains the value
    first.

    `from_tools`: argument, value, and the tool whose response contains the value. `from_user`:
    argument, and the ID of the user message that contains its value. `reused_arguments`: arguments
    that an earlier call of another tool already had. `origins`: all of them, in order.
    """

    event_id: str
    tool: str
    call: str
    from_tools: tuple[tuple[str, str, str], ...] = ()
    from_user: tuple[tuple[str, str], ...] = ()
    reused_arguments: tuple[tuple[str, str], ...] = ()
    user_confirmation: str | None = None
    is_write: bool = True
    origins: tuple[ValueOrigin, ...] = ()


@dataclass(frozen=True, slots=True)
class LookupHop:
    """A call whose argument `name` came from the response to `source_call`."""

    event_id: str
    source_call: str
    call: str
    name: str


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of one trace. `tool_sequence` lists the tools in order with the number of
    consecutive calls. `latest_tool_event_id`: the first call of the tool whose first call comes
    last. Agents look things up before they act, so it ranks events if nothing better is known.
    `decisive_event_ids`: see `decisive_step`.
    """

    language: str
    task: str
    call_count: int = 0
    failed_call_count: int = 0
    tool_sequence: tuple[tuple[str, int], ...] = ()
    first_calls: tuple[str, ...] = ()
    last_call: str | None = None
    last_event_id: str | None = None
    last_call_event_id: str | None = None
    last_failure_message: str = ""
    closing_message: str = ""
    last_reply_event_id: str | None = None
    latest_tool_event_id: str | None = None
    first_write_event_id: str | None = None
    first_write: str | None = None
    write_count: int = 0
    last_write_event_id: str | None = None
    last_write: str | None = None
    has_replies: bool = False
    ends_without_reply: bool = False
    failed_calls: tuple[FailedCall, ...] = ()
    repeated_calls: tuple[RepeatedCall, ...] = ()
    failure_streaks: tuple[FailureStreak, ...] = ()
    repaired_calls: tuple[RepairedCall, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    unconfirmed_changes: tuple[UnconfirmedChange, ...] = ()
    final_answer: FinalAnswer | None = None
    action_deviations: tuple[ActionDeviation, ...] = ()
    missing_outputs: tuple[MissingOutput, ...] = ()
    failed_assertions: tuple[FailedAssertion, ...] = ()
    crash: Crash | None = None
    slowest_call: SlowestCall | None = None
    attempt_contrast: AttemptContrast | None = None
    repeated_attempt: RepeatedAttempt | None = None
    argument_origin: ArgumentOrigin | None = None
    lookup_hops: tuple[LookupHop, ...] = ()
    dialogue: Dialogue | None = None
    team: AgentTeam | None = None
    answer_origin: AnswerOrigin | None = None
    unsupported_statements: tuple[UnsupportedStatement, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    omitted_constraint: OmittedConstraint | None = None
    repeated_messages: tuple[RepeatedMessage, ...] = ()
    unresolved_outputs: tuple[UnresolvedOutput, ...] = ()
    repeated_results: tuple[RepeatedResult, ...] = ()
    unused_results: tuple[UnusedResult, ...] = ()
    truncated_outputs: tuple[TruncatedOutput, ...] = ()
    decisive_event_ids: tuple[str, ...] = ()
    earlier_lesson: str | None = None
    earlier_failure_count: int = 0
    earlier_success_count: int = 0
    tools: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The findings as JSON types, without empty fields."""
        items = ((name, getattr(self, name)) for name in _field_names(Findings))
        return {
            name: _to_json(item) for name, item in items if item not in (None, (), "", 0, False)
        }


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        items = ((name, getattr(value, name)) for name in _field_names(type(value)))
        return {name: _to_json(item) for name, item in items if item not in (None, (), "")}
    if isinstance(value, tuple):
        return [_to_json(item) for item in cast("tuple[Any, ...]", value)]
    return value


def has_wrong_answer(findings: Findings) -> bool:
    """Whether the run gave an answer that the environment or the ground truth contradicts."""
    answer = findings.final_answer
    return answer is not None and (
        answer.is_correct is False
        or (
            answer.is_correct is None
            and answer.expected_answer is not None
            and answer.relation_to_expected in (None, "different")
        )
    )


def last_unrepaired_failure(findings: Findings) -> FailedCall | None:
    """The last failed call of a tool that did not succeed afterwards."""
    return next(
        (call for call in reversed(findings.failed_calls) if not call.tool_succeeded_later), None
    )
