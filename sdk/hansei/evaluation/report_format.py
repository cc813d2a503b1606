"""The fields of a report that its readers rely on, and its summary."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.evaluation.plan import ARMS, PHASES, Phase, are_arms
from hansei.evaluation.records import TEXTS, Form, check_fields, matches

PRIMARY_LABELS = {
    "held-out tasks": "held-out tasks",
    "second pass": "second pass",
    "stream": "first pass",
    "stream after its first window": "first pass after its first window",
}
"""What decides, in a report → in words."""
MAX_ID_LENGTH = 128
MAX_ROWS = 100
"""Of a table by arm. A page of reports has them all."""
MAX_AGENT_LENGTH = 1_000
"""Characters of the command of an agent in a summary."""


def primary_label(phase: Phase, window: int) -> str:
    held_out, second, stream, later_stream = PRIMARY_LABELS
    if phase == "stream":
        return later_stream if window else stream
    return held_out if phase == "held_out" else second


def check_report(report: Json) -> None:
    """Raises `EvaluationError` with the first field that is missing or has another form. Reports of
    older versions lack `_NEWER` fields and the last fields of a comparison. `about` says what was
    measured, in the words of a person.
    """
    report = {**_NEWER, **report}
    _check("the report", report, _REPORT)
    _check("`plan`", report["plan"], _PLAN)
    _check("`protocol`", report["plan"]["protocol"], _PROTOCOL)
    _check("`tasks`", report["tasks"], dict.fromkeys(("stream", "held_out", "controls"), int))
    _check("`calls`", report["calls"], dict.fromkeys(("done", "planned"), int))
    for name, fields in _ROWS.items():
        for number, row in enumerate(report[name], start=1):
            _check(f"`{name}`, row {number}", {**_DEFAULTS, **row}, fields)
    measured = {row["arm"] for row in report["accuracy"] if row["phase"] == "primary"}
    for row in report["comparisons"]:
        if not {row["first"], row["second"]} <= measured:
            raise EvaluationError(
                "`accuracy` lacks an arm of `comparisons` in the phase `primary`."
            )
    if report["learning"] is not None:
        _check("`learning`", report["learning"], _LEARNING)


def without_texts(report: Json) -> Json:
    """The report without texts of errors: of a failed call, it says only whether the agent or the
    scorer failed.
    """
    failures = [row | {"error": row["error"].split(":")[0]} for row in report["failures"]]
    learning = report["learning"]
    if learning is not None:
        failed_runs = [run | {"error": None} for run in learning["failed_runs"]]
        learning = learning | {"failed_runs": failed_runs}
    return report | {"failures": failures, "learning": learning}


def summarize_report(report: Json) -> Json:
    """What `headline` and a list of reports need."""
    comparisons = [
        {name: value for name, value in row.items() if not isinstance(value, list)}
        for row in report["comparisons"]
    ]
    return {
        "arms": report["plan"]["protocol"]["arms"],
        "playbook": report["plan"]["protocol"]["playbook"],
        "agent": report["plan"]["agent"][:MAX_AGENT_LENGTH],
        "primary": report["primary"],
        "partial_scores": report.get("partial_scores", False),
        "accuracy": [row for row in report["accuracy"] if row["phase"] == "primary"],
        "comparisons": comparisons,
        "advice": [{n: row[n] for n in ("arm", "measures_nothing")} for row in report["advice"]],
        "calls": report["calls"],
        "failures": len(report["failures"]),
        "total_usd": report["total_usd"],
    }


def _check(place: str, value: Any, fields: Mapping[str, Form]) -> None:
    check_fields(cast("Json", value), fields, place[:1].upper() + place[1:])


def _is_share(value: Any) -> bool:
    return matches(value, float) and value <= 1


def _is_difference(value: Any) -> bool:
    return isinstance(value, int | float) and -1 <= value <= 1


def _is_time(value: Any) -> bool:
    try:
        time = datetime.fromisoformat(value)
        return time.tzinfo is not None and bool(time.astimezone(UTC))
    except (TypeError, ValueError, OverflowError):  # in UTC, the year may be 0 or 10000
        return False


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH


def _is_shares_by_arm(value: Any) -> bool:
    return matches(value, {str: _is_share}) and set(value) <= set(ARMS)


def _is_gain(value: Any) -> bool:
    return matches(value, dict) and all(
        _is_difference(value.get(n)) for n in ("mean", "low", "high")
    )


def _are_few_rows(value: Any) -> bool:
    return matches(value, [dict]) and len(value) <= MAX_ROWS


def _is_seed(value: Any) -> bool:
    return isinstance(value, int)


_PLAN: Mapping[str, Form] = {
    "id": _is_short_text,
    "created_at": _is_time,
    "protocol": dict,
    "window": int,
    **dict.fromkeys(("agent", "sha256", "repeated_sha256"), str),
}
_PROTOCOL: Mapping[str, Form] = {
    "arms": are_arms,
    "repeats": int,
    "seed": _is_seed,
    "feedback": str,
    "playbook": (_is_short_text, None),
}
_COMPARISON: Mapping[str, Form] = {
    "first": ARMS[1:],
    "second": ARMS,
    **dict.fromkeys(("mean", "low", "high"), _is_difference),
    **dict.fromkeys(("tasks", "better", "worse", "tasks_needed"), int),
    "p": _is_share,
    **dict.fromkeys(("became_right", "became_wrong", "changed_by_failed_call"), TEXTS),
    **dict.fromkeys(("changes_needed", "can_improve"), (int, None)),
}
_NEWER: Json = {"first_pass": [], "bullets": [], "partial_scores": False, "about": None}
_DEFAULTS: Json = {"changes_needed": None, "can_improve": None, "changed_by_failed_call": []}
_ROWS: Mapping[str, Mapping[str, Form]] = {
    "accuracy": {
        "phase": ("primary", *PHASES),
        "arm": ARMS,
        **dict.fromkeys(("tasks", "calls", "failed"), int),
        **dict.fromkeys(("mean", "low", "high"), _is_share),
    },
    "comparisons": _COMPARISON,
    "first_pass": _COMPARISON,
    "controls": _COMPARISON,
    "agentcl": {
        "arm": ARMS,
        **dict.fromkeys(
            ("plasticity", "stability", "second_pass_gain", "generalization"), (_is_gain, None)
        ),
    },
    "groups": {"group": str, "arms": _is_shares_by_arm},
    "advice": {
        "arm": ARMS,
        **dict.fromkeys(("calls", "rendered", "judged"), int),
        "measures_nothing": bool,
        **dict.fromkeys(("cited", "followed"), (int, None)),
        "tokens": float,
    },
    "bullets": {"arm": ARMS, "key": str, **dict.fromkeys(("repeat", "given", "cited"), int)},
    "costs": {
        "arm": ARMS,
        "calls": int,
        **dict.fromkeys(
            ("input_tokens", "output_tokens", "usd", "total_usd", "seconds"), (float, None)
        ),
    },
    "curve": {"window": int, "arms": _is_shares_by_arm, "bullets": (float, None)},
    "failures": {
        "phase": tuple(PHASES),
        **dict.fromkeys(("task_id", "arm", "error"), str),
    },
}
_REPORT: Mapping[str, Form] = {
    **dict.fromkeys(("plan", "tasks", "calls"), dict),
    "primary": tuple(PRIMARY_LABELS),
    **dict.fromkeys(_ROWS, _are_few_rows),
    **{name: [dict] for name in ("groups", "bullets", "curve", "failures")},
    "partial_scores": bool,
    "learning": (dict, None),
    "total_usd": (float, None),
    "notes": TEXTS,
    "about": (str, None),
}
_LEARNING: Mapping[str, Form] = {
    **dict.fromkeys(("traces", "calls", "input_tokens", "output_tokens"), float),
    **dict.fromkeys(
        (
            *("calls_per_trace", "usd", "usd_per_trace", "bullets", "helpful_bullets"),
            "usd_per_helpful_bullet",
        ),
        (float, None),
    ),
    "waiting": float,
    "unpriced_calls": float,
    "failed_runs": list,
    "projects": TEXTS,
}
