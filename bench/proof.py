"""Whether a playbook makes agents better: answers of readers, scored again from recordings.

Each archive in `tests/recordings/eval` is the folder of one `hansei eval run` whose model was a
reader (bench/readers). The bench scores each answer again, stops if one differs from what was
recorded, and computes the report. It makes the tasks of House Rules again from their seed. Of
ACE's Formula and FiNER, the archives have the right answers and no question.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.harness import ROOT, Report
from bench.recordings import SAFE_FILTER
from hansei.evaluation.house_rules.episode import score_answer
from hansei.evaluation.house_rules.tasks import find_task
from hansei.evaluation.presets import score_finer, score_formula
from hansei.evaluation.report import build_report

RECORDINGS = ROOT / "tests" / "recordings" / "eval"
ABOUT = (
    "Each row is one arm of one run on the held-out tasks: right answers of the tasks that a "
    "hidden convention touches (all tasks of Formula and FiNER), and of the controls. "
    "`difference`: the success rate minus that of `none`, with its 95 % interval and the p-value "
    "of McNemar's exact test. `tokens`: of the advice, for a task. The readers are language "
    "models, see bench/readers/README.md."
)
FIRST_CALLS = "Whether an agent asks the MCP server for advice before it acts"
Json = dict[str, Any]
SCORERS = {
    "hansei.evaluation.presets:score_formula": score_formula,
    "hansei.evaluation.presets:score_finer": score_finer,
}
"""Of the presets. Every other run is House Rules."""


def main(
    recordings: Annotated[Path, typer.Option(help="Folder of the archives.")] = RECORDINGS,
) -> None:
    make_report(recordings).finish(write=recordings == RECORDINGS)


def make_report(recordings: Path = RECORDINGS) -> Report:
    """The report of all archives of a folder."""
    report = Report("proof", ABOUT)
    columns = ("run", "arm", "conventions", "controls", "difference", "p", "tokens")
    report.table("arms", "Held-out tasks", *columns)
    columns = ("run", "traces", "right", "model calls for a trace", "bullets")
    report.table("learning", "Learning: the stream of `hansei`", *columns)
    columns = ("advice", "conventions", "controls", "model calls", "input tokens", "bullets")
    report.table("batches", "Runs in one prompt, and the heading of the advice", *columns)
    with lzma.open(recordings / "batches.jsonl.xz", "rt") as lines:
        for line in lines:
            add_variant(report, json.loads(line))
    report.table("first calls", FIRST_CALLS, "wording", "reader", "asked first")
    for line in (recordings / "first_calls.jsonl").read_text("utf8").splitlines():
        reader = json.loads(line)
        asked = [reply["reply"].startswith("render_playbook(") for reply in reader["replies"]]
        report.row(
            "first calls", reader["wording"], reader["reader"], f"{sum(asked)} of {len(asked)}"
        )
    for archive in sorted(recordings.glob("*.tar.xz")):
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(archive) as file:
                file.extractall(folder, **SAFE_FILTER)
            add_rows(report, archive.name.removesuffix(".tar.xz"), Path(folder))
    return report


def add_variant(report: Report, variant: Json) -> None:
    """The row of one advice that the held-out tasks of `e43` got. Raises `ValueError`."""
    answers: list[Json] = variant["answers"]
    for answer in answers:
        check_score(answer, float(score_answer(answer["task_id"], answer["answer"]).is_right))
    controls = [a for a in answers if is_control(a["task_id"])]
    touched = [a for a in answers if not is_control(a["task_id"])]
    costs = (variant[name] for name in ("calls", "input_tokens", "bullets"))
    report.row("batches", variant["variant"], right(touched), right(controls), *costs)


def add_rows(report: Report, run: str, folder: Path) -> None:
    """The rows of one run. Raises `ValueError` if a score cannot be repeated."""
    every = list(rescored(folder))
    answers = [a for a in every if a["phase"] == "held_out"]
    control_ids: set[str] = set()
    if find_scorer(folder) is None:
        control_ids = {a["task_id"] for a in answers if is_control(a["task_id"])}
    result = build_report(folder)
    differences = {c["first"]: c for c in result["comparisons"] if c["second"] == "none"}
    for arm in result["plan"]["protocol"]["arms"]:
        mine = [a for a in answers if a["arm"] == arm]
        controls = [a for a in mine if a["task_id"] in control_ids]
        touched = [a for a in mine if a["task_id"] not in control_ids]
        tokens = sum(a["advice_tokens"] for a in mine) / max(len(mine), 1)
        report.row(
            "arms",
            run,
            arm,
            right(touched),
            right(controls),
            interval(differences.get(arm)),
            p_value(differences.get(arm)),
            f"{tokens:.0f}",
        )
    if learning := result["learning"]:
        calls = f"{learning['calls_per_trace']:.2f}"
        stream = [a for a in every if a["phase"] == "stream" and a["arm"] == "hansei"]
        share = f"{100 * sum(a['score'] for a in stream) / max(len(stream), 1):.0f} %"
        report.row("learning", run, learning["traces"], share, calls, learning["bullets"])


def find_scorer(folder: Path) -> Callable[[Json], float] | None:
    """That of a preset; None for House Rules."""
    return SCORERS.get(json.loads((folder / "plan.json").read_text("utf8"))["scorer"])


def rescored(folder: Path) -> Iterator[Json]:
    scorer = find_scorer(folder)
    tasks = map(json.loads, (folder / "tasks.jsonl").read_text("utf8").splitlines())
    solutions = {task["id"]: task.get("solution") for task in tasks}
    for line in (folder / "answers.jsonl").read_text("utf8").splitlines():
        answer = json.loads(line)
        task_id, text = answer["task_id"], answer["answer"]
        if not answer["error"]:
            if scorer:
                score = scorer({"answer": text, "solution": solutions[task_id]})
            else:
                score = float(score_answer(task_id, text).is_right)
            check_score(answer, score)
        yield answer


def check_score(answer: Json, score: float) -> None:
    if score != answer["score"]:
        raise ValueError(f"{answer['task_id']}: {score} instead of {answer['score']}")


def is_control(task_id: str) -> bool:
    return find_task(task_id)[1].is_control


def right(answers: list[Json]) -> str:
    """The sum of the scores. In FiNER, a task scores the share of its right tags."""
    return f"{round(sum(a['score'] for a in answers), 2):g} of {len(answers)}"


def interval(difference: Json | None) -> str:
    if difference is None:
        return "–"
    mean, low, high = (100 * difference[name] for name in ("mean", "low", "high"))
    return f"{mean:+.0f} ({low:+.0f} to {high:+.0f})"


def p_value(difference: Json | None) -> str:
    if difference is None:
        return "–"
    return "< .001" if difference["p"] < 0.001 else f"{difference['p']:.3f}".lstrip("0")


if __name__ == "__main__":
    typer.run(main)
