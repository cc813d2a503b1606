"""Verdicts from the next trial's outcome, beside what is known of real lessons (ALFWorld).

    python -m bench lesson_effect

The data: 39 tasks, each tried in two series of trials by an agent that writes lessons after
failures and has its last three in the next trial. A task that was solved is not tried again, so
only trials up to the first success are attempts. A lesson is judged as the service judges a bullet:
attempts of its task that had it against those that did not, among them the first trial of the other
series.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.memory_api.reflection import contrast
from apps.memory_api.reflection.contrast import Sides, chance_better
from bench.reflection_rules import DEFAULT
from bench.tables import Report

HELD = 3
"""Lessons that Reflexion keeps in its prompt."""


@dataclass(frozen=True)
class Lesson:
    """`solved` is what the data says of the next trial; `next` are the sides once that trial is
    known, `final` when all trials are.
    """

    solved: bool
    next: Sides
    final: Sides


def attempts(line: dict[str, Any]) -> list[bool]:
    """The trials that were really made: up to the first success."""
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
            having = made[after + 1 : after + 1 + HELD]
            later = made[after + 1 + HELD :]
            yield Lesson(
                lesson["solved_next"],
                _sides(having[:1], before),
                _sides(having, [*before, *later]),
            )


def _sides(having: Sequence[bool], lacking: Sequence[bool]) -> Sides:
    return Sides(len(having), sum(having), len(lacking), sum(lacking))


def verdict(sides: Sides, least: int, sure: float) -> str:
    """`contrast` with other settings, to see what they would say."""
    if min(sides.with_n, sides.without_n) < least:
        return "none"
    better = chance_better(sides)
    ahead = sides.with_won * sides.without_n - sides.without_won * sides.with_n
    if better >= sure and ahead > 0:
        return "helpful"
    return "harmful" if better <= 1 - sure and ahead < 0 else "none"


def main() -> None:
    """Prints the tables and writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", type=Path, default=DEFAULT.parent)
    path: Path = parser.parse_args().path / "lesson_effect_alfworld.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = list(lessons(lines))
    solved = sum(lesson.solved for lesson in found)
    report = Report("lesson_effect", f"{len(found)} lessons in {len(lines)} series; the next "
                    f"trial succeeded after {solved} of them.")  # fmt: skip
    report.table("agree", "Verdicts on each lesson, and how they agree with the next trial",
                 "rule", "helpful", "of these solved next", "harmful", "of these not solved next",
                 "no verdict")  # fmt: skip
    used = f"at least {contrast.LEAST} a side, {contrast.SURE:.0%} sure"
    report.row("agree", "the next outcome itself (evidence only)", *_agreement(
        found, ["helpful" if x.solved else "harmful" for x in found]))  # fmt: skip
    for title, least, sure in (
        (f"in use: {used}", contrast.LEAST, contrast.SURE),
        ("at least 2 a side, 90 % sure", 2, 0.9),
        ("at least 1 a side, 90 % sure", 1, 0.9),
    ):
        for when in ("next", "final"):
            said = [verdict(getattr(lesson, when), least, sure) for lesson in found]
            shown = "after the next trial" if when == "next" else "after all trials"
            report.row("agree", f"contrast, {title}; {shown}", *_agreement(found, said))
    report.finish()


def _agreement(found: Sequence[Lesson], said: Sequence[str]) -> list[str]:
    many = Counter(said)
    right = Counter(tag for tag, x in zip(said, found, strict=True) if x.solved)
    return [
        str(many["helpful"]),
        str(right["helpful"]),
        str(many["harmful"]),
        str(many["harmful"] - right["harmful"]),
        str(many["none"]),
    ]


if __name__ == "__main__":
    main()
