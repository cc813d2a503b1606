"""The fields of a report that its readers rely on, and its summary."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from hansei._model import Json
from hansei.evaluation.plan import ARMS, PHASES
from hansei.evaluation.records import (
    Check,
    check_fields,
    is_count,
    is_list,
    is_list_of_objects,
    is_list_of_texts,
    is_number,
    is_text,
    optional,
)

PRIMARY_LABELS = ("held-out tasks", "stream", "stream after its first window")
"""What decides."""
MAX_ID_LENGTH = 128


def check_report(report: Json) -> None:
    """Raises `EvaluationError` with the first field that is missing or has another form."""
    _check("the report", report, _REPORT)
    _check("`plan`", report["plan"], _PLAN)
    _check("`protocol`", report["plan"]["protocol"], _PROTOCOL)
    _check("`tasks`", report["tasks"], dict.fromkeys(("stream", "held_out", "controls"), is_count))
    _check("`calls`", report["calls"], dict.fromkeys(("done", "planned"), is_count))
    for name, fields in _ROWS.items():
        for number, row in enumerate(report[name], start=1):
            _check(f"`{name}`, row {number}", row, fields)
    if report["learning"] is not None:
        _check("`learning`", report["learning"], _LEARNING)


def summarize_report(report: Json) -> Json:
    """What `headline` and a list of reports need."""
    comparisons = [
        {name: value for name, value in row.items() if name not in ("became_right", "became_wrong")}
        for row in report["comparisons"]
    ]
    return {
        "arms": report["plan"]["protocol"]["arms"],
        "agent": report["plan"]["agent"],
        "primary": report["primary"],
        "accuracy": [row for row in report["accuracy"] if row["phase"] == "primary"],
        "comparisons": comparisons,
        "advice": [{n: row[n] for n in ("arm", "measures_nothing")} for row in report["advice"]],
        "calls": report["calls"],
        "total_usd": report["total_usd"],
    }


def _check(place: str, value: Any, fields: Mapping[str, Check]) -> None:
    check_fields(cast("Json", value), fields, place[:1].upper() + place[1:])


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_rows(value: Any) -> bool:
    return is_list(value) and is_list_of_objects(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return is_number(value) and value <= 1


def _is_difference(value: Any) -> bool:
    return isinstance(value, int | float) and -1 <= value <= 1


def _is_arm(value: Any) -> bool:
    return value in ARMS


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _is_short_text(value: Any) -> bool:
    return is_text(value) and 0 < len(value) <= MAX_ID_LENGTH


def _is_shares_by_arm(value: Any) -> bool:
    return _is_object(value) and all(_is_arm(arm) and _is_share(s) for arm, s in value.items())


def _is_gain(value: Any) -> bool:
    return _is_object(value) and all(_is_difference(value.get(n)) for n in ("mean", "low", "high"))


_PLAN: Mapping[str, Check] = {
    "id": _is_short_text,
    "created_at": _is_time,
    "protocol": _is_object,
    "window": is_count,
    **dict.fromkeys(("agent", "sha256", "repeated_sha256"), is_text),
}
_PROTOCOL: Mapping[str, Check] = {
    "arms": lambda value: is_list(value) and bool(value) and all(map(_is_arm, value)),
    "repeats": is_count,
    "seed": lambda value: isinstance(value, int),
    "feedback": is_text,
    "playbook": optional(_is_short_text),
}
_COMPARISON: Mapping[str, Check] = {
    **dict.fromkeys(("first", "second"), _is_arm),
    **dict.fromkeys(("mean", "low", "high"), _is_difference),
    **dict.fromkeys(("tasks", "better", "worse", "tasks_needed", "repeats_needed"), is_count),
    "p": _is_share,
    **dict.fromkeys(("became_right", "became_wrong"), is_list_of_texts),
}
_ROWS: Mapping[str, Mapping[str, Check]] = {
    "accuracy": {
        "phase": lambda value: value in ("primary", *PHASES),
        "arm": _is_arm,
        **dict.fromkeys(("tasks", "calls", "failed"), is_count),
        **dict.fromkeys(("mean", "low", "high"), _is_share),
    },
    "comparisons": _COMPARISON,
    "controls": _COMPARISON,
    "agentcl": {
        "arm": _is_arm,
        **dict.fromkeys(
            ("plasticity", "stability", "second_pass_gain", "generalization"), optional(_is_gain)
        ),
    },
    "groups": {"group": is_text, "arms": _is_shares_by_arm},
    "advice": {
        "arm": _is_arm,
        **dict.fromkeys(("calls", "rendered", "judged"), is_count),
        "measures_nothing": _is_flag,
        **dict.fromkeys(("cited", "followed"), optional(is_count)),
        "tokens": is_number,
    },
    "costs": {
        "arm": _is_arm,
        "calls": is_count,
        **dict.fromkeys(
            ("input_tokens", "output_tokens", "usd", "total_usd", "seconds"), optional(is_number)
        ),
    },
    "curve": {"window": is_count, "arms": _is_shares_by_arm, "bullets": optional(is_number)},
    "failures": {
        "phase": lambda value: value in tuple(PHASES),
        **dict.fromkeys(("task_id", "arm", "error"), is_text),
    },
}
_REPORT: Mapping[str, Check] = {
    **dict.fromkeys(("plan", "tasks", "calls"), _is_object),
    "primary": lambda value: value in PRIMARY_LABELS,
    **dict.fromkeys(_ROWS, _is_rows),
    "learning": optional(_is_object),
    "total_usd": optional(is_number),
    "notes": is_list_of_texts,
}
_LEARNING: Mapping[str, Check] = {
    **dict.fromkeys(("traces", "calls", "input_tokens", "output_tokens"), is_number),
    **dict.fromkeys(
        (
            *("calls_per_trace", "usd", "usd_per_trace", "bullets", "helpful_bullets"),
            "usd_per_helpful_bullet",
        ),
        optional(is_number),
    ),
    "waiting": is_number,
    "unpriced_calls": is_number,
    "failed_runs": is_list,
    "projects": lambda value: is_list_of_texts(value) and bool(value),
}
