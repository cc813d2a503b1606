"""The agent with a model on questions that need several passages, against two simpler agents.

    python -m bench grace_with_model                 the report, from recorded answers
    python -m bench grace_with_model --ask           asks the configured model for the missing ones
    python -m bench grace_with_model --ask --arm react --model-per-arm

40 questions about a fictional company: `--questions harbor` or another set
(bench/grace_questions.py).
Arms: `one_search` searches for the question and answers; `react` is a loop of observing and
deciding (`run_legacy_agent`); `grace` plans; `again` is `grace` asked a second time, after a person
has said of each answer whether it is right, and the service has learned from that by the rules. In
each arm the same person answers what the run asks: with the next fact that they know, else
`proceed`, else `skip`.

The model is that of the service (HANSEI_LLM_PROVIDER, HANSEI_LLM_MODEL, HANSEI_OPENAI_BASE_URL).
With `--model-per-arm`, its name ends in the name of the arm, so that each arm can have a reader of
its own (bench/readers), and in `judge` for the calls that compare an answer with its sources, so
that nobody judges their own answers. Each answer is stored as soon as it is there: a bench that was
stopped goes on where it was. Arms can run at the same time, but `again` needs `grace`.

Prompts of earlier measurements have changed, so their model calls cannot be replayed. Their
questions with the endings of their runs are in `measured/` beside the recorded answers; the report
scores them again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.grace_arms import Answered, ArmBench
from bench.grace_questions import SETS, load_set
from bench.harness import ROOT, Report, measured_server
from bench.recorded_model import NotRecorded
from hansei.evaluation.statistics import (
    PairedDifference,
    format_p,
    paired_difference,
    wilson_interval,
)
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.llm.errors import LLMError
from memory_api.llm.port import LLM
from memory_api.llm.registry import open_configured_models

RECORDINGS = ROOT / "tests" / "recordings" / "grace"
MEASURED = RECORDINGS / "measured"
ARMS = ("one_search", "react", "grace", "again")
SURE = 0.9


def main(
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; repeat it.")] = None,
    ask: Annotated[bool, typer.Option(help="Ask the configured model, if needed.")] = False,
    model_per_arm: Annotated[bool, typer.Option(help="Add the arm to the model's name.")] = False,
    at_once: Annotated[int, typer.Option(help="Questions at the same time.")] = 20,
    questions: Annotated[str, typer.Option(help=f"The set: {' or '.join(SETS)}.")] = SETS[0],
    recordings: Annotated[Path, typer.Option(help="Folder of the recorded answers.")] = RECORDINGS,
) -> None:
    configure_logging("console", "critical")
    if set(arm or ()) - {*ARMS}:
        raise typer.BadParameter(f"There are: {', '.join(ARMS)}.", param_hint="--arm")
    if questions not in SETS:
        raise typer.BadParameter(f"There are: {', '.join(SETS)}.", param_hint="--questions")
    folder = recordings / questions
    arms = [each for each in ARMS if each in (arm or (ARMS if ask else recorded_arms(folder)))]
    if not arms:
        raise SystemExit(f"{folder} has no recorded answers. Use --ask.")
    results: dict[str, list[Answered]] = {}
    with measured_server() as server:
        for name in arms:
            bench = ArmBench(name, folder, load_set(questions), at_once)
            models = open_models(name, model_per_arm) if ask else (None, None)
            try:
                results |= asyncio.run(bench.run(server, *models))
            except (NotRecorded, LLMError) as error:
                raise SystemExit(f"{name}: {error} Stored answers are used again.") from None
            typer.echo(f"{name}: {bench.model.new_count} new answers of the model", err=True)
    report = to_report({name: results[name] for name in arms})
    is_whole = questions == SETS[0] and arms == recorded_arms(folder)
    report.finish(write=recordings == RECORDINGS and is_whole)


def recorded_arms(folder: Path = RECORDINGS / SETS[0]) -> list[str]:
    """The arms that have recorded answers."""
    return [arm for arm in ARMS if (folder / f"{arm}.jsonl").exists()]


def open_models(arm: str, model_per_arm: bool) -> tuple[LLM, LLM | None]:
    """The configured model without the wrappers of the service, and the judge, if it has a name of
    its own.
    """
    if not model_per_arm:
        return _open_model(""), None
    return _open_model(f"-{arm}"), _open_model("-judge")


def _open_model(suffix: str) -> LLM:
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    if suffix:
        name = f"{settings.llm_model or 'model'}{suffix}"
        settings = settings.model_copy(update={"llm_model": name})
    models = open_configured_models(settings)
    if not models:
        raise typer.BadParameter("No model is configured. Set HANSEI_LLM_PROVIDER and a key.")
    return models[0]


def load_measurement(file: Path) -> dict[str, list[Answered]]:
    """Arm → its answered questions. The file is named after the date and the set of questions."""
    questions = {each.id: each for each in load_set(file.stem.rpartition("-")[2]).questions}
    results: dict[str, list[Answered]] = {}
    for line in file.read_text("utf8").splitlines():
        stored = json.loads(line)
        question = questions[stored.pop("question")]
        results.setdefault(stored.pop("arm"), []).append(Answered(question, **stored))
    return results


# The report


def to_report(results: Mapping[str, Sequence[Answered]]) -> Report:
    """The tables of the arms that were run, and of earlier measurements."""
    first = next(iter(results.values()))
    report = Report(
        "grace_with_model",
        f"{len(first)} questions about the documents of a fictional company, whose answers no model"
        " can know. Half of the questions leave out a fact that the person says if the run asks."
        " In parentheses: the 95 % interval of Wilson. Goals for `grace`: right ≥ 85 % of the"
        " answerable questions, two passages ≥ 10 points above `react` at no more tokens, no wrong"
        " answer above .9, asked for nothing ≤ 5 %.",
    )
    report.table(
        *("arms", "The arms", "arm", "answerable: right", "two passages: right", "simple: right"),
        *("no answer: not answered", "wrong", "wrong above .9", "asked", "asked for nothing"),
    )
    report.table(
        *("effort", "What a question took, on average", "arm", "calls", "tokens"),
        *("tokens, two passages", "steps", "questions to the person"),
    )
    report.table(
        *("pairs", "Differences in points, with the 95 % interval and McNemar's exact test"),
        *("arms", "questions", "difference", "p", "better", "worse"),
    )
    report.table(
        *("measurements", "All measurements, the first one first", "measurement", "arm"),
        *("answerable: right", "two passages: right", "no answer: not answered", "wrong"),
        *("wrong above .9", "asked for nothing", "tokens", "two passages: grace − react"),
    )
    report.table(
        *("not right", "Answers that were not right", "arm", "question", "ending", "expected"),
        *("answer", "confidence", "asked"),
    )
    for arm, answered in results.items():
        _add_arm(report, arm, answered)
    for one, other, types in (
        ("grace", "react", ("two",)),
        ("grace", "react", ("two", "simple")),
        ("grace", "one_search", ("two", "simple")),
        ("again", "grace", ("two", "simple", "none")),
    ):
        if {one, other} <= results.keys():
            _add_pair(report, results, one, other, types)
    for file in sorted(MEASURED.glob("*.jsonl")):
        _add_measurement(report, file.stem, load_measurement(file))
    _add_measurement(report, "this one", results)
    return report


def _add_arm(report: Report, arm: str, answered: Sequence[Answered]) -> None:
    two, simple, none = (_of(answered, kind) for kind in ("two", "simple", "none"))
    wrong, sure, for_nothing = _mistakes(answered)
    report.row(
        *("arms", arm, _share([*two, *simple]), _share(two), _share(simple), _share(none)),
        *(wrong, sure, sum(each.asked > 0 for each in answered), for_nothing),
    )
    report.row(
        *("effort", arm, _mean([each.calls for each in answered])),
        *(_mean([each.tokens for each in answered]), _mean([each.tokens for each in two])),
        *(_mean([each.steps for each in answered]), _mean([each.asked for each in answered])),
    )
    for each in answered:
        if not each.is_right:
            text = " ".join((each.run["answer"] or each.run["state"]).split()).replace("|", "/")
            report.row(
                *("not right", arm, each.question.id, each.ending, each.question.expected or "–"),
                *(text[:160], each.run["confidence"], each.asked),
            )


def _add_pair(
    report: Report,
    results: Mapping[str, Sequence[Answered]],
    one: str,
    other: str,
    types: Sequence[str],
) -> None:
    found = _compare(results[one], results[other], types)
    report.row(
        *("pairs", f"{one} − {other}", f"{found.tasks} ({', '.join(types)})", _points(found)),
        *(format_p(found.p), found.better, found.worse),
    )


def _add_measurement(report: Report, name: str, results: Mapping[str, Sequence[Answered]]) -> None:
    for arm, answered in results.items():
        two, none = _of(answered, "two"), _of(answered, "none")
        is_compared = arm == "grace" and "react" in results
        report.row(
            *("measurements", name, arm, _share(_of(answered, "two", "simple")), _share(two)),
            *(_share(none), *_mistakes(answered), _mean([each.tokens for each in answered])),
            _points(_compare(answered, results["react"], ("two",))) if is_compared else "",
        )


def _of(answered: Sequence[Answered], *types: str) -> list[Answered]:
    return [each for each in answered if each.question.type in types]


def _mistakes(answered: Sequence[Answered]) -> tuple[int, int, str]:
    """Wrong answers, those of them above .9, and runs that asked for nothing."""
    wrong = [each for each in answered if each.ending == "wrong"]
    sure = sum((each.run["confidence"] or 0) > SURE for each in wrong)
    for_nothing = sum(each.asked_for_nothing > 0 for each in answered)
    return len(wrong), sure, f"{for_nothing} of {len(answered)}"


def _compare(
    ours: Sequence[Answered], theirs: Sequence[Answered], types: Sequence[str]
) -> PairedDifference:
    return paired_difference(
        *([float(each.is_right) for each in _of(arm, *types)] for arm in (ours, theirs))
    )


def _points(found: PairedDifference) -> str:
    mean, low, high = (round(100 * each) for each in (found.mean, found.low, found.high))
    return f"{mean:+d} ({low:+d} to {high:+d})"


def _share(answered: Sequence[Answered]) -> str:
    found = wilson_interval([float(each.is_right) for each in answered])
    count = sum(each.is_right for each in answered)
    return f"{count} of {len(answered)} ({100 * found.low:.0f} to {100 * found.high:.0f} %)"


def _mean(values: Sequence[int]) -> str:
    mean = sum(values) / max(1, len(values))
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.1f}"


if __name__ == "__main__":
    typer.run(main)
