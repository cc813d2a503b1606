"""Findings about conversations, agents and outputs; part of `Findings`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DivergenceKind = Literal[
    "misread",
    "stale_file",
    "altered_number",
    "altered_unit",
    "substituted",
    "from_statement",
    "without_call",
    "partial_view",
    "unopened",
    "typed_in",
    "passed_over",
    "stalled_call",
    "stalled_output",
    "unread_files",
    "ignored_objection",
]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation without tools. `repeated_phrases`: clauses that several replies contain, the
    number of those replies and the first of them. `dissatisfied_message` contains a phrase of the
    vocabulary.
    """

    user_message_count: int
    reply_count: int
    repeated_phrases: tuple[tuple[str, int, str], ...] = ()
    dissatisfied_message: str | None = None
    dissatisfied_event_id: str | None = None
    reply_before_dissatisfaction: str | None = None
    reply_before_dissatisfaction_event_id: str | None = None
    ratings: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class AgentTeam:
    """The agents of a run with the number of their steps. `last_agent` ended the run."""

    agents: tuple[tuple[str, int], ...]
    hand_off_count: int
    code_count: int
    last_agent: str
    last_event_id: str


@dataclass(frozen=True, slots=True)
class AnswerOrigin:
    """Where the value of the final answer first occurs after the task.

    `kind`: what the first event with the value is; a report is a message that shows a page or file.
    `author_event_id` is the first statement, or the step whose code or request caused the first
    output with the value. `output_event_id`: the first output or report that contains the value,
    None if there is none.
    """

    kind: Literal["message", "output", "report"]
    answer: str
    value: str
    answer_event_id: str
    first_event_id: str
    author_event_id: str
    author: str
    output_event_id: str | None
    mention_count: int


@dataclass(frozen=True, slots=True)
class UnsupportedStatement:
    """A message without code that states `count` values that no earlier event contains."""

    event_id: str
    agent: str
    count: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A step of an agent that departs from what the run had shown before. `source_event_id` is the
    event that it departs from.

    kind: what the step does (`stated`; `found`).

    - misread: gives a value of another cell of a table (label and value; the value of the cell)
    - stale_file: names a file although a newer one exists (the file; the newer one)
    - altered_number: gives a number with other digits (the number; the one before)
    - altered_unit: gives a number with another unit (number and unit; the ones before)
    - substituted: gives a number in place of one of the task (the number; that of the task)
    - from_statement: states values that occur in no earlier event; a later call or program,
      `source_event_id`, uses them (the values)
    - without_call: states values that occur in no earlier event; its agent has made no call, and
      another agent uses them (the values)
    - partial_view: follows a part of a longer output; no later event shows the rest (found: the
      words of the output, `page 1 of 3`)
    - unopened: answers a request to open a source that no call opens (the source)
    - unread_files: follows calls that open some of the files that an output lists (their number;
      the number of files)
    - typed_in: is a program with values typed in, after one that opens a file failed (found: the
      file)
    - passed_over: gives the final answer although an earlier event has the expected one (the
      answer; the expected answer)
    - ignored_objection: repeats the final answer after another agent objected to it (the answer;
      the objection)
    - stalled_call, stalled_output: is the first of several calls until the end that are equal (the
      call), or whose outputs start alike (found: the start); `source_event_id` is the last of them
    """

    kind: DivergenceKind
    event_id: str
    agent: str
    stated: str = ""
    found: str = ""
    source_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class OmittedConstraint:
    """Numbers and names of the task that no later step mentions. `event_id`: the first step of an
    agent.
    """

    event_id: str
    agent: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatedMessage:
    """The same opening of a message of one agent, `count` times, at least 2. `event_id` is the
    first repetition.
    """

    event_id: str
    event_ids: tuple[str, ...]
    agent: str
    count: int
    quote: str


@dataclass(frozen=True, slots=True)
class UnresolvedOutput:
    """Code whose output is an error or empty, with no successful output after it. `next_event_id`:
    the next step, if it contains no code.
    """

    event_id: str
    output_event_id: str
    agent: str
    exit_code: int | None
    next_event_id: str | None = None
    next_agent: str = ""


@dataclass(frozen=True, slots=True)
class RepeatedResult:
    """The same text of at least 200 characters, returned to different calls."""

    event_id: str
    event_ids: tuple[str, ...]
    calls: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class UnusedResult:
    """A response whose numbers and names no later event contains."""

    event_id: str
    response_event_id: str
    call: str


@dataclass(frozen=True, slots=True)
class SlowestCall:
    """The slowest call. `time_share` is its share of all measured time, 0 to 1. From 0.5 on, it is
    dominant: in a timeout, the event that decided.
    """

    event_id: str
    call: str
    seconds: float
    time_share: float

    @property
    def is_dominant(self) -> bool:
        return self.time_share >= 0.5


@dataclass(frozen=True, slots=True)
class TruncatedOutput:
    """An output that says that it was truncated. `quote` are its words."""

    event_id: str
    output_event_id: str
    call: str
    quote: str
