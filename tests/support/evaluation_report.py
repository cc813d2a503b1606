"""A report of `hansei eval`, as `build_report` makes it: 30 held-out tasks, three arms."""

from __future__ import annotations

from typing import Any

from hansei.evaluation.notes import find_notes
from hansei.evaluation.statistics import mean_interval, paired_difference, wilson_interval
from memory_api.evaluation_reports.schemas import CREATE_EXAMPLE

Report = dict[str, Any]
ARMS = ("none", "hansei", "icl")
TASKS = [f"order-{number:02}" for number in range(1, 31)]
CONTROLS = [f"hello-{number}" for number in range(1, 9)]
RIGHT = {"none": range(12), "hansei": (*range(1, 12), *range(14, 30)), "icl": range(6, 24)}
"""The tasks that each arm solves. `hansei` turns one wrong: the first."""


def scores(arm: str) -> list[float]:
    return [float(number in RIGHT[arm]) for number in range(len(TASKS))]


def compare(first: str, second: str) -> Report:
    one, two = scores(first), scores(second)
    pairs = list(zip(TASKS, one, two, strict=True))
    return {
        "first": first,
        "second": second,
        **vars(paired_difference(one, two)),
        "can_improve": sum(score < 1 for score in two),
        "became_right": [task for task, a, b in pairs if a > b],
        "became_wrong": [task for task, a, b in pairs if a < b],
        "changed_by_failed_call": [],
    }


def control(first: str, *harmed: str) -> Report:
    values = [-float(task in harmed) for task in CONTROLS]
    result = paired_difference([1 + v for v in values], [1.0] * len(values))
    return {
        "first": first,
        "second": "none",
        **vars(result),
        "can_improve": 0,
        "became_right": [],
        "became_wrong": list(harmed),
        "changed_by_failed_call": [],
    }


def evaluation_report(
    name: str = "20260301T101500-4f2a", playbook: str | None = "support"
) -> Report:
    accuracy = [
        {"phase": phase, "arm": arm, "tasks": 30, "calls": 30, "failed": 0}
        | vars(wilson_interval(scores(arm)))
        for phase in ("primary", "stream")
        for arm in ARMS
    ]
    gain = {"tasks": 30, **vars(mean_interval([0.5] * 30))}
    curve = [
        {"window": window, "arms": {"none": 0.4, "hansei": share, "icl": 0.55}, "bullets": bullets}
        for window, share, bullets in ((1, 0.4, 3), (2, 0.7, 6), (3, 0.8, 8), (4, 0.9, 8))
    ]
    report: Report = {
        "plan": {
            "id": name,
            "created_at": "2026-03-01T10:15:00+00:00",
            "agent": "python my_agent.py",
            "protocol": {
                "arms": list(ARMS),
                "repeats": 1,
                "seed": 1,
                "feedback": "answer",
                "playbook": playbook,
            },
            "window": 10,
            "sha256": "9f2c" * 16,
            "repeated_sha256": "77ab" * 16,
        },
        "tasks": {"stream": 40, "held_out": 30, "controls": 8},
        "calls": {"done": 290, "planned": 290},
        "primary": "held-out tasks",
        "partial_scores": False,
        "accuracy": accuracy,
        "comparisons": [
            compare("hansei", "none"),
            compare("icl", "none"),
            compare("hansei", "icl"),
        ],
        "first_pass": [compare("hansei", "none")],
        "agentcl": [
            {"arm": "hansei", "plasticity": gain, "stability": gain}
            | {"second_pass_gain": None, "generalization": gain}
        ],
        "controls": [control("hansei"), control("icl", "hello-3")],
        "groups": [{"group": "abroad", "arms": {"none": 0.2, "hansei": 0.9, "icl": 0.6}}],
        "advice": [
            {"arm": arm, "calls": 108, "rendered": 98, "measures_nothing": False, "cited": cited}
            | {"followed": cited, "judged": 40, "tokens": 412.5}
            for arm, cited in (("hansei", 33), ("icl", None))
        ],
        "bullets": [
            {"arm": "hansei", "key": f"pat-0000{number}", "repeat": 0, "given": 98, "cited": cited}
            for number, cited in ((1, 33), (2, 0))
        ],
        "costs": [
            {"arm": arm, "calls": 98, "input_tokens": tokens, "output_tokens": 61.0}
            | {"usd": usd, "total_usd": 98 * usd, "seconds": 1.4}
            for arm, tokens, usd in (("none", 90.0, 4e-05), ("hansei", 502.5, 2.1e-04))
        ],
        "curve": curve,
        "learning": CREATE_EXAMPLE["report"]["learning"],
        "total_usd": 0.0555,
        "failures": [
            {"task_id": "order-07", "arm": "icl", "phase": "stream", "repeat": 0}
            | {"error": "The agent did not answer within 120 seconds."}
        ],
    }
    return report | {"notes": find_notes(report)}
