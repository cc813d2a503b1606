"""Checks of the arguments that a program gives to a recorded trace, where it gives them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

from hansei._names import check_names
from hansei.models import EventType, MatchRule, OutcomeType
from hansei.recording.advice import RenderOptions

Role = Literal["user", "assistant", "system", "developer", "tool"]
EVENT_TYPES_OF_ROLES: Mapping[Role, EventType] = {
    "user": "user_message",
    "assistant": "llm_response",
    "system": "system_event",
    "developer": "system_event",
    "tool": "tool_response",
}
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
OUTCOMES: tuple[OutcomeType, ...] = get_args(OutcomeType)
MATCH_RULES: tuple[MatchRule, ...] = get_args(MatchRule)
TRACE_FIELDS = frozenset(
    ("external_id", "project_id", "task_key", "playbook", "parent_id", "session_id", "language",
     "task_description", "task_goal", "query", "generated_answer", "reasoning_steps", "outcome",
     "error", "ground_truth", "match", "test_report", "used_bullet_keys", "retrieval_id", "tools",
     "related_memory_ids", "metadata", "_reflect")
)  # fmt: skip
"""The fields of a trace that `trace` and `update` take."""
RENDER_OPTIONS = frozenset(RenderOptions.__annotations__)


def check_fields(fields: Mapping[str, object]) -> None:
    """Raises `TypeError` for the name of a field that a trace does not have, and `ValueError` for
    an unknown outcome or `match`.
    """
    check_names("A trace has no field", fields, TRACE_FIELDS, " Put your own data into `metadata`.")
    if "outcome" in fields:
        check_outcome(fields["outcome"])
    _check_value("match", fields.get("match"), (None, *MATCH_RULES))


def check_render_options(options: Mapping[str, object]) -> None:
    """Raises `TypeError` for the name of an option that `render` does not have."""
    names = f" The options are {', '.join(sorted(RENDER_OPTIONS))}."
    check_names("`render` has no option", options, RENDER_OPTIONS, names)


def check_outcome(outcome: object) -> None:
    """Raises `ValueError` if the outcome is none of `OutcomeType`."""
    _check_value("outcome", outcome, (None, *OUTCOMES))


def check_role(role: object) -> None:
    """Raises `ValueError` if the role of a message is unknown."""
    _check_value("role", role, tuple(EVENT_TYPES_OF_ROLES))


def check_event_type(event_type: object) -> None:
    """Raises `ValueError` if an event has no type of `EventType`."""
    _check_value("event_type", event_type, (*EVENT_TYPES, "user_input"))


def _check_value(name: str, value: object, known: Collection[object]) -> None:
    if value not in known:
        names = ", ".join(str(each) for each in known if each is not None)
        raise ValueError(f"`{name}` must be one of {names}, not {value!r}.")
