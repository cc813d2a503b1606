"""What an exported record says about its outcome and its user. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from memory_api.core.errors import InvalidRequest
from memory_api.traces.importers.agent_logs import Record, objects
from memory_api.traces.schemas import OutcomeType

_USER_FIELDS = ("userId", "user_id", "user", "safety_identifier")
"""Where Langfuse, LangSmith and the APIs of models name the user."""
_MAX_SHOWN = 60


def score_outcome(record: Record, name: str) -> OutcomeType | None:
    """The outcome that a score states: of Langfuse in `scores`, of LangSmith in `feedback_stats`,
    or in `metadata`. None if the record has no such score. Raises `InvalidRequest`.
    """
    value = next((each for each in _scores(record, name) if each is not None), None)
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip().casefold()
        if text in set(OutcomeType):
            return OutcomeType(text)
        value = {"true": 1, "false": 0}.get(text, value)
    if isinstance(value, int | float) and 0 <= value <= 1:
        exact: dict[float, OutcomeType] = {0: OutcomeType.FAILURE, 1: OutcomeType.SUCCESS}
        return exact.get(value, OutcomeType.PARTIAL)
    raise InvalidRequest(
        f"The score `{name}` is {str(value)[:_MAX_SHOWN]}. An outcome is 1 or true, 0 or false, a "
        f"number between them, or one of {', '.join(OutcomeType)}.",
        field="outcome_from",
    )


def find_subject(record: Record) -> str | None:
    """The user whose data a record holds, as its program names the person."""
    extra = _fields(record.get("extra"))
    for place in (record, _fields(record.get("metadata")), _fields(extra.get("metadata"))):
        for field in _USER_FIELDS:
            if isinstance(user := place.get(field), str) and user:
                return user
    return None


def _scores(record: Record, name: str) -> Iterator[Any]:
    """The values of this name, the last score first. A score of one observation is none of the
    trace.
    """
    scores = record.get("scores")
    for score in reversed(objects(scores)):
        if score.get("name") == name and not score.get("observationId"):
            is_text = score.get("dataType") == "CATEGORICAL" or score.get("value") is None
            yield score.get("stringValue") if is_text else score.get("value")
    yield _fields(scores).get(name)
    feedback = _fields(_fields(record.get("feedback_stats")).get(name))
    yield feedback.get("avg")
    values = _fields(feedback.get("values"))
    yield next(iter(values)) if len(values) == 1 else None
    yield _fields(record.get("metadata")).get(name)


def _fields(value: Any) -> Record:
    return cast(Record, value) if isinstance(value, Mapping) else {}
