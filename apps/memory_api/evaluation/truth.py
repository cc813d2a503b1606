"""What a ground truth asks for, and what of it a run gave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from apps.memory_api.evaluation.compare import compare
from apps.memory_api.evaluation.schemas import Comparison
from apps.memory_api.traces.arguments import as_items, as_mapping
from apps.memory_api.traces.steps import Run, Step

_ANSWERS = ("answer", "expected", "expected_answer", "gold", "target", "answers")
_FINAL = re.compile(
    r"^(?:finish|answer|final_?answer|submit|done|complete|respond)$", re.IGNORECASE
)
HELD = 0.9
"""The score of prose that holds the right answer."""
_OUTPUTS = 10
_MESSAGE = 20_000


def right_answers(ground_truth: Any) -> list[str]:
    """The answers that are right: a text or number, a list of them, or a mapping with a field for
    it; [] when the ground truth is something else.
    """
    mapping = as_mapping(ground_truth)
    if mapping:
        named = (right_answers(mapping.get(name)) for name in _ANSWERS)
        return next(filter(None, named), list[str]())
    values = as_items(ground_truth) or [ground_truth]
    plain = [v for v in values if isinstance(v, str | int | float) and not isinstance(v, bool)]
    return [str(v).strip() for v in plain if str(v).strip()] if len(plain) == len(values) else []


def expected_answer(ground_truth: Any) -> str | None:
    """The right answer, the first of several; None when the ground truth has none."""
    return next(iter(right_answers(ground_truth)), None)


def answers_with(step: Step) -> bool:
    """Whether a call gives the run's answer, by its tool's name."""
    return bool(_FINAL.match(step.tool))


def answering(steps: Sequence[Step]) -> Step | None:
    """The last call that gave an answer, by its tool's name or because it was judged."""
    for step in reversed(steps):
        if step.verdict is not None or (answers_with(step) and step.args):
            return step
    return None


def given_by(step: Step) -> str:
    """The answer that an answering call holds."""
    return step.args.get("") or next(iter(step.args.values()), "")


def compare_answer(run: Run, answer: str | None, ground_truth: Any) -> Comparison | None:
    """What the run answered beside what was right; None without a right answer or any answer. In
    prose the right answer may stand among other words, in an answering call it is all there is.
    """
    right = right_answers(ground_truth)
    step = answering(run.steps)
    prose = answer or (run.text(run.said[-1]) if run.said and step is None else None)
    if not right or (prose is None and step is None):
        return None
    if prose is None:
        return compare(given_by(step) if step else "", right)
    found = compare(prose, right)
    return replace(found, score=HELD) if found.relation == "wider" else found


def expected_outputs(ground_truth: Any) -> list[str]:
    """What the user should have been told."""
    return [str(one) for one in as_items(as_mapping(ground_truth).get("outputs"))[:_OUTPUTS]]


def untold(run: Run, ground_truth: Any) -> list[str]:
    """Expected outputs that stand in no message of the run."""
    texts = [run.text(at)[:_MESSAGE].casefold() for at in run.said]
    bare = [text.replace(",", "") for text in texts]
    return [
        output
        for output in expected_outputs(ground_truth)
        if not any(output.casefold() in text for text in (*bare, *texts))
    ]
