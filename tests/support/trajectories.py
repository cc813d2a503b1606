"""A trajectory for tests, and what a model answers about it."""

from __future__ import annotations

from typing import Any

from memory_api.reflection.trajectories.schemas import Trajectory
from tests.support.stub_provider import answer

TRAJECTORY = Trajectory(
    query="Return the last n lines of a file.",
    generated_answer="open(p).read().split('\\n')[-n:]",
    reasoning_steps=["Split by line breaks.", "Take the last n."],
    used_bullet_ids=["pat-00001", "mis-00002"],
    dataset="coding",
)
TRUTH = "open(p).read().splitlines()[-n:]"
REPORT = "FAILED test_tail.py::test_newline - assert ['b', ''] == ['a', 'b']"
ASKED = (TRAJECTORY, TRUTH, REPORT, "coding")


def insight(key: str = "Use splitlines for lines.", **changes: str) -> dict[str, str]:
    return {
        "reasoning": "The report shows an empty last line.",
        "error_identification": "An empty text counts as a line.",
        "root_cause_analysis": "A line break ends a line.",
        "correct_approach": "splitlines",
        "key_insight": key,
    } | changes


def verdict(bullet_id: str, tag: str, reason: str = "The second step shows it.") -> dict[str, str]:
    return {"bullet_id": bullet_id, "tag": tag, "reason": reason}


def said(*insights: dict[str, str], verdicts: Any = ()) -> Any:
    return answer({"insights": list(insights), "bullet_evaluations": list(verdicts)})


BOTH = (verdict("pat-00001", "helpful"), verdict("mis-00002", "neutral"))
