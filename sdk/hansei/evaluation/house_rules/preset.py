"""House Rules as presets of `hansei eval`: `house-rules`, `house-rules-fleet`,
`house-rules-fleet-long`.
"""

from __future__ import annotations

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.evaluation.house_rules.domain import DOMAINS
from hansei.evaluation.house_rules.episode import score_answer
from hansei.evaluation.house_rules.tasks import VARIANTS, benchmark, reveal
from hansei.evaluation.presets import Preset
from hansei.evaluation.tasks import Task

STREAM_SIZES = {"plain": 60, "renamed": 60, "long": 400}
"""Tasks to learn from, by variant. A convention of `renamed` and `long` changes halfway."""
HELD_OUT = 60


def load(name: str, seed: int) -> Preset:
    """`name` is a desk and a variant, such as `fleet-long`; both may be left out. Raises
    `EvaluationError`.
    """
    desk, _, variant = name.partition("-")
    desk, variant = desk or "airline", variant or "plain"
    if desk not in DOMAINS or variant not in VARIANTS:
        raise EvaluationError(
            f"Unknown preset 'house-rules-{name}'. Its desks are {', '.join(DOMAINS)}, its variants"
            f" {', '.join(VARIANTS)}, as in `house-rules-fleet-long`."
        )
    if seed < 0:
        raise EvaluationError("The seed of House Rules is not negative.")
    found, stream = benchmark(desk, variant, seed), STREAM_SIZES[variant]
    tasks = [
        Task(
            task.id,
            task.text,
            solution=found.score(task, []).right_calls,
            group="control" if task.is_control else "with a convention",
            control=task.is_control,
            split="stream" if index < stream else "held_out",
            metadata={"conventions": [f"{c.kind}:{c.tool}" for c in task.touched]},
        )
        for index, task in enumerate(found.take(stream + HELD_OUT))
    ]
    order = "random" if variant == "plain" else "file"
    return Preset(tasks, f"{__name__}:{score.__name__}", order=order, about=list(reveal(found)))


def score(document: Json) -> tuple[float, str]:
    """Whether the calls of an answer have the wanted outcome, and what the outcome shows."""
    result = score_answer(document["task_id"], document["answer"])
    return float(result.is_right), result.feedback("error")
