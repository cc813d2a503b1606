"""What the rules found in a run: plain evidence, JSON-serialisable, given to the writer of rules
and to a model alike.

Every text field is already a short quote (see `traces.quotes.cut`); every `event` is the id of an
event of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from apps.memory_api.evaluation.actions import Departure
from apps.memory_api.traces.arguments import Change
from apps.memory_api.traces.schemas import ErrorCategory, Event, OutcomeType


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier run of the same task. `ground_truth_known` says whether its outcome was checked
    against one."""

    outcome: OutcomeType
    events: Sequence[Event]
    trace_id: str | None = None
    ground_truth_known: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed. `event` is the call (the cause), `response_event` where the failure was
    reported.

    `stated` is who reported it: the tool, an error event, or only the next message in `words`.
    `offered` are alternatives the response listed; `invented` are arguments found nowhere earlier
    in the run."""

    event: str
    response_event: str | None
    tool: str
    call: str
    kind: str
    message: str
    category: ErrorCategory
    stated: str = "tool"
    offered: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same call (tool and arguments) made `count` >= 2 times."""

    event: str
    events: tuple[str, ...]
    tool: str
    call: str
    count: int
    failing: int


@dataclass(frozen=True, slots=True)
class Streak:
    """`count` >= 3 failing calls of one tool with no success of it between them.

    `kept` are the words all arguments share, `tried` the arguments, `untried` what responses
    offered and no call took, `unquoted` an argument whose entry was offered under the same name
    without quotation marks."""

    event: str
    events: tuple[str, ...]
    tool: str
    count: int
    kept: str
    tried: tuple[str, ...]
    untried: tuple[str, ...]
    unquoted: str | None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """A call that failed, and a later call of the same tool that worked. `via` is the tool called
    between the two whose response holds the new value of `taken`, an argument that changed."""

    failed_event: str
    event: str
    tool: str
    failures: int
    message: str
    kind: str
    before: str
    after: str
    changes: tuple[Change, ...]
    taken: str | None
    via: str | None
    took_offer: bool
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that declines, or a hand-over. `done_later` names the call that then did it after
    all."""

    event: str
    kind: str
    quote: str
    asked: str
    done_later: str | None = None


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A changing call although the instructions ask for the user's consent and the last user
    message gives none."""

    event: str
    tool: str
    rule: str
    user_said: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The run's final answer and what is known of it.

    `verdict`: what the environment said (None = nothing). `relation` to the expected answer: same,
    wider (ours has more words), narrower, different, unknown (words cannot tell), None (no answer).
    `expected_event`/`expected_call`: the response that showed the expected answer, `given_event`:
    the response that showed ours (None = in no response). `unsearched`: names of the question that
    no call looked for."""

    event: str | None
    given: str
    verdict: bool | None = None
    expected: str | None = None
    relation: str | None = None
    expected_event: str | None = None
    expected_call: str | None = None
    given_event: str | None = None
    given_call: str | None = None
    reason: str = ""
    reason_event: str | None = None
    unsearched: tuple[str, ...] = ()
    comparison: bool = False


@dataclass(frozen=True, slots=True)
class Untold:
    """A figure or phrase the user should have been told and was not; `said` is the closest thing
    told instead."""

    expected: str
    event: str | None
    said: str


@dataclass(frozen=True, slots=True)
class Assertion:
    """One failing test of the test report."""

    test: str
    message: str
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True)
class Crash:
    """The run broke off in code: the last line of a traceback and the innermost frame that is not a
    library."""

    event: str
    message: str
    place: str
    kind: str
    category: ErrorCategory
    cause_event: str | None = None
    cause_call: str | None = None
    wanted: str | None = None
    got: str | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """The slowest step and its share of all measured time."""

    event: str
    call: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Contrast:
    """This run against an attempt of the same task that ended the other way. `ours`/`theirs`: calls
    only one side made; `event`: our first call that theirs does not have; `changes`: arguments of
    the same changing call that differ (before = the failed side, after = the successful one);
    `tool`: of that call. `their_answer`: what the other side answered, when that differs;
    `unquoted`: a call of ours the failed side made with quotation marks around its argument;
    `held_back`: a changing tool only the failed used."""

    we_succeeded: bool
    trace_id: str | None
    event: str | None
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    tools_ours: tuple[str, ...]
    tools_theirs: tuple[str, ...]
    tool: str | None = None
    changes: tuple[Change, ...] = ()
    others: int = 1
    their_answer: str | None = None
    unquoted: str | None = None
    held_back: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Earlier attempts (`times` of them) that made exactly the same calls and ended the same
    way."""

    times: int
    trace_id: str | None
    first_call: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the arguments of the decisive call came from: argument -> the tool or `user` that named
    its value."""

    event: str
    tool: str
    call: str
    from_tools: tuple[tuple[str, str, str], ...] = ()
    from_user: tuple[tuple[str, str], ...] = ()
    carried: tuple[tuple[str, str], ...] = ()
    confirmed: str | None = None
    writes: bool = True


@dataclass(frozen=True, slots=True)
class Hop:
    """A call whose argument the response to an earlier call had named: `name` led from `start` to
    `call`."""

    event: str
    start: str
    call: str
    name: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation without tools. `taken_up`: replies that repeat a word of the user's message
    before, with the words."""

    turns: int
    replies: int
    asked_back: int
    taken_up: int
    words: tuple[str, ...]
    repeated: tuple[tuple[str, int], ...]
    unhappy: str | None
    unhappy_event: str | None
    before_unhappy: str | None
    before_event: str | None
    topic: str
    longest_event: str | None
    ratings: tuple[tuple[str, float], ...] = ()
    drew: str | None = None
    drew_event: str | None = None
    shortest: str = ""
    shortest_event: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was found. `path` is the order of tools, `calls` how many calls, `failed_calls` how
    many failed."""

    language: str
    task: str
    calls: int = 0
    failed_calls: int = 0
    path: tuple[tuple[str, int], ...] = ()
    shown_calls: tuple[str, ...] = ()
    last_call: str | None = None
    last_event: str | None = None
    last_call_event: str | None = None
    last_message: str = ""
    last_said: str = ""
    last_said_event: str | None = None
    first_write_event: str | None = None
    first_write: str | None = None
    writes: int = 0
    last_write_event: str | None = None
    last_write: str | None = None
    said_anything: bool = False
    open_end: bool = False
    failures: tuple[Failure, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    streaks: tuple[Streak, ...] = ()
    retries: tuple[Retry, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    unconfirmed: tuple[Unconfirmed, ...] = ()
    answer: Answer | None = None
    departures: tuple[Departure, ...] = ()
    untold: tuple[Untold, ...] = ()
    assertions: tuple[Assertion, ...] = ()
    crash: Crash | None = None
    slow: Slow | None = None
    contrast: Contrast | None = None
    again: Again | None = None
    origin: Origin | None = None
    hops: tuple[Hop, ...] = ()
    dialogue: Dialogue | None = None
    told_before: str | None = None
    earlier_failures: int = 0
    earlier_successes: int = 0
    tools: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """The evidence as JSON types, without what is empty."""
        return {k: _plain(v) for k, v in asdict(self).items() if v not in (None, (), "", 0, False)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        entries = cast(dict[str, Any], value)
        return {k: _plain(v) for k, v in entries.items() if v not in (None, (), "")}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in cast(Sequence[Any], value)]
    return value
