"""Task sets: House Rules, which a seed makes, and public ones, whose data are not part of Hansei.

The two of ACE (arXiv 2510.04618) are read as its own code reads them: the training set is the
stream and the test set is held out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.evaluation import bfcl
from hansei.evaluation.tasks import Split, Task, share_of_items

NUMBER_FORM = (
    " Your answer should be a plain floating point number, round to the nearest hundredth if"
    " necessary. Do the necessary conversions, for example 5 million should be 5000000.0. "
)
"""What ACE adds to each question of Formula, word for word: it is part of the protocol."""


@dataclass(frozen=True)
class Preset:
    """`scorer` is a function. `window` is the default of the protocol's, `order` replaces it.
    `about` is what a person may know about the tasks, and an agent must not.
    """

    tasks: list[Task]
    scorer: str
    window: int | None = None
    order: Literal["random", "file"] | None = None
    about: Sequence[str] = ()


@dataclass(frozen=True)
class AceSet:
    """`scorer` is a function of this module. `patterns` are the files of the two sets; the
    first one that exists is read.
    """

    scorer: str
    patterns: dict[Split, tuple[str, ...]]
    question: Callable[[str], str]


def formula_question(context: str) -> str:
    """The question alone, with the form of the number. The formula above it is not shown."""
    if "Question: " not in context or ". Answer:" not in context:
        return context
    question = context.split("Question: ", 1)[1].split(". Answer:")[0].strip()
    if question.startswith('"') and question.endswith('"'):
        question = question[1:-1]
    return question + NUMBER_FORM


def finer_question(context: str) -> str:
    """The instruction and the text to tag."""
    if "Input: " not in context or "Instruction: " not in context:
        return context
    instruction = context.split("Input: ")[0].strip().split("Instruction: ")[1].strip()
    text = context.split("Input: ")[1].split("Answer: ")[0].strip()
    return f"{instruction}\n\n{text}"


def score_formula(document: Json) -> float:
    """Equal as numbers without commas, otherwise equal as text."""
    given, wanted = (str(document[name]).replace(",", "") for name in ("answer", "solution"))
    try:
        first, second = float(given), float(wanted)
    except ValueError:
        return float(given == wanted)
    return float(first == second and math.isfinite(first))


def score_finer(document: Json) -> float:
    """The share of right tags; each of the expected ones counts at its place."""
    return share_of_items(document["answer"], document["solution"])


ACE_SETS = {
    "ace-formula": AceSet(
        "score_formula",
        {"stream": ("formula_train*.jsonl",), "held_out": ("formula_test*.jsonl",)},
        formula_question,
    ),
    "ace-finer": AceSet(
        "score_finer",
        {"stream": ("finer_train*.jsonl", "finer_val*.jsonl"), "held_out": ("finer_test*.jsonl",)},
        finer_question,
    ),
}


HOUSE_RULES = "house-rules"
PRESETS = (*ACE_SETS, "bfcl", HOUSE_RULES)


def load_preset(name: str, folder: Path | None = None, seed: int = 1) -> Preset:
    """`folder` has the data of ACE, `seed` makes House Rules. Raises `EvaluationError`."""
    if name == HOUSE_RULES or name.startswith(f"{HOUSE_RULES}-"):
        # Importing the benchmark takes 50 ms, which every command of `hansei` would need.
        house_rules = import_module("hansei.evaluation.house_rules.preset")
        return house_rules.load(name.removeprefix(HOUSE_RULES).removeprefix("-"), seed)
    if name == "bfcl":
        return Preset(bfcl.make_tasks(), f"{bfcl.__name__}:{bfcl.score.__name__}")
    ace_set = ACE_SETS.get(name)
    if ace_set is None:
        raise EvaluationError(f"Unknown preset '{name}'. Presets are {', '.join(PRESETS)}.")
    if folder is None:
        raise EvaluationError(f"Preset {name} needs --data with the folder of the data of ACE.")
    tasks: list[Task] = []
    for split, patterns in ace_set.patterns.items():
        paths = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
        if not paths:
            raise EvaluationError(f"{folder} has no file {' or '.join(patterns)}.")
        tasks += _read_ace(paths[0], split, ace_set.question)
    return Preset(tasks, f"{__name__}:{ace_set.scorer}", window=15)


def _read_ace(path: Path, split: Split, question_of: Callable[[str], str]) -> list[Task]:
    tasks: list[Task] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields: Any = json.loads(line)
            question, target = question_of(str(fields["context"])), str(fields["target"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise EvaluationError(f"{path}, line {number}: {reason}.") from error
        tasks.append(Task(f"{split}-{number}", question, solution=target, split=split))
    return tasks
