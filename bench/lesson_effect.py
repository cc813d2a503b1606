"""Verdicts from the outcome of the next trial, compared with the labels of real lessons (ALFWorld).

    python -m bench lesson_effect

The data has 39 tasks. For each, an agent makes two series of trials, writes lessons after failures,
and has its last three lessons in the next trial. A solved task is not tried again, so only trials
up to the first success are attempts. A lesson is judged as the service judges a bullet: attempts at
its task with the lesson are compared with attempts without it, including the first trial of the
other series.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Report
from bench.rules import DEFAULT
from memory_api.reflection.credit import outcome_contrast
from memory_api.reflection.credit.outcome_contrast import AttemptCounts, probability_better

MAX_LESSONS_IN_PROMPT = 3
"""Of Reflexion."""


@dataclass(frozen=True)
class Lesson:
    """`solved`: whether the next trial succeeded. `next`: the attempt counts after the next trial.
    `final`: the counts after all trials.
    """

    solved: bool
    next: AttemptCounts
    final: AttemptCounts


def attempts(line: dict[str, Any]) -> list[bool]:
    """The trials up to the first success."""
    trials: list[bool] = line["success_by_trial"]
    return trials[: trials.index(True) + 1] if True in trials else trials


def lessons(lines: Sequence[dict[str, Any]]) -> Iterator[Lesson]:
    for line in lines:
        made = attempts(line)
        others = [x for x in lines if x["group"] == line["group"] and x is not line]
        bare = [attempts(other)[0] for other in others]
        for lesson in line["lessons"]:
            after = lesson["after_trial"]
            before = [*made[: after + 1], *bare]
            having = made[after + 1 : after + 1 + MAX_LESSONS_IN_PROMPT]
            later = made[after + 1 + MAX_LESSONS_IN_PROMPT :]
            yield Lesson(
                lesson["solved_next"],
                _sides(having[:1], before),
                _sides(having, [*before, *later]),
            )


def _sides(having: Sequence[bool], lacking: Sequence[bool]) -> AttemptCounts:
    return AttemptCounts(len(having), sum(having), len(lacking), sum(lacking))


def verdict(sides: AttemptCounts, least: int, sure: float) -> str:
    """The verdict of `outcome_contrast` with other settings."""
    if min(sides.with_count, sides.without_count) < least:
        return "none"
    better = probability_better(sides)
    ahead = sides.with_successes * sides.without_count - sides.without_successes * sides.with_count
    if better >= sure and ahead > 0:
        return "helpful"
    return "harmful" if better <= 1 - sure and ahead < 0 else "none"


def main() -> None:
    """Print and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", type=Path, default=DEFAULT.parent)
    path: Path = parser.parse_args().path / "lesson_effect_alfworld.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = list(lessons(lines))
    solved = sum(lesson.solved for lesson in found)
    report = Report("lesson_effect", f"{len(found)} lessons in {len(lines)} series; the next "
                    f"trial succeeded after {solved} of them.")  # fmt: skip
    report.table("agree", "Verdicts on each lesson, and agreement with the next trial",
                 "rule", "helpful", "of these solved next", "harmful", "of these not solved next",
                 "no verdict")  # fmt: skip
    in_use = (outcome_contrast.MIN_ATTEMPTS_PER_SIDE, outcome_contrast.MIN_CERTAINTY)
    report.row("agree", "the next outcome itself", *_agreement(
        found, ["helpful" if x.solved else "harmful" for x in found]))  # fmt: skip
    for title, least, sure in (
        (f"in use: at least {in_use[0]} per side, {in_use[1]:.0%} certainty", *in_use),
        ("at least 2 per side, 90 % certainty", 2, 0.9),
        ("at least 1 per side, 90 % certainty", 1, 0.9),
    ):
        for when in ("next", "final"):
            verdicts = [verdict(getattr(lesson, when), least, sure) for lesson in found]
            shown = "after the next trial" if when == "next" else "after all trials"
            report.row("agree", f"contrast, {title}; {shown}", *_agreement(found, verdicts))
    report.finish()


def _agreement(found: Sequence[Lesson], verdicts: Sequence[str]) -> list[str]:
    many = Counter(verdicts)
    right = Counter(tag for tag, x in zip(verdicts, found, strict=True) if x.solved)
    return [
        str(many["helpful"]),
        str(right["helpful"]),
        str(many["harmful"]),
        str(many["harmful"] - right["harmful"]),
        str(many["none"]),
    ]


if __name__ == "__main__":
    main()
