"""Starts, resumes and reports evaluations: `hansei.evaluate` and the body of `hansei eval`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hansei
from hansei._model import Json
from hansei.errors import EvaluationError
from hansei.evaluation.agents import Commands, Function, make_agent, make_scorer
from hansei.evaluation.html_report import format_html
from hansei.evaluation.memory import Memory
from hansei.evaluation.plan import PLAN_FILE, Plan, Protocol, load_plan, make_plan
from hansei.evaluation.records import PRICES_FILE, RecordFile, read_prices
from hansei.evaluation.report import build_report
from hansei.evaluation.report_format import without_texts
from hansei.evaluation.runner import Limits, Progress, Runner
from hansei.evaluation.tasks import parse_tasks, read_tasks

if sys.platform != "win32":
    import fcntl
else:
    fcntl = None

if TYPE_CHECKING:
    from hansei.client import Hansei

REPORT_FILE, HTML_FILE = "report.json", "report.html"
OnProgress = Callable[[Progress], None]


def evaluate(
    agent: str | Function,
    tasks: str | Path | Iterable[Mapping[str, Any]],
    score: str | Callable[..., Any] | None = None,
    *,
    folder: str | Path | None = None,
    client: Hansei | None = None,
    on_progress: OnProgress = lambda _: None,
    **options: Any,
) -> Json:
    """Measure what advice changes for `agent`, and return the report.

    `agent` is a function (or a command) that receives `task`, `advice`, `retrieval_id`, `task_id`
    and `arm`, and returns an answer or an object with `answer` and optionally `events`, `outcome`
    and `usage`. `score` receives the task, with the `answer`, `events` and `outcome` of the agent,
    and returns a number from 0 to 1, alone or with a feedback text. Without it, tasks have
    `expected`. Answers are stored in `folder`; a second call with the same folder resumes.
    `options` are the fields of `Protocol` and `Limits`, such as `arms`, `repeats` and `budget_usd`.
    Raises `EvaluationError`.
    """
    protocol, limits = split_options(options)
    has_scorer = score is not None
    if isinstance(tasks, str | Path):
        found = read_tasks(Path(tasks), has_scorer=has_scorer)
    else:
        lines = list(enumerate(tasks, start=1))
        found = parse_tasks(lines, source="The list", has_scorer=has_scorer)
    plan = make_plan(found, protocol, agent=_name_of(agent), scorer=score and _name_of(score))
    target = Path(folder) if folder is not None else default_folder(plan)
    if (target / PLAN_FILE).exists():
        stored = load_plan(target)
        plan = replace(plan, primary=stored.primary)  # of an older version
        if stored.to_json()["repeated_sha256"] != plan.to_json()["repeated_sha256"]:
            raise EvaluationError(f"{target} has an evaluation of other tasks or options.")
        plan = stored
    return run(
        plan,
        target,
        agent=agent,
        scorer=score,
        limits=limits,
        client=client,
        on_progress=on_progress,
    )


def split_options(options: Mapping[str, Any]) -> tuple[Protocol, Limits]:
    """Raises `TypeError` for an unknown option."""
    names = {field.name for field in fields(Protocol)}
    protocol = {name: value for name, value in options.items() if name in names}
    if "arms" in protocol:
        protocol["arms"] = tuple(protocol["arms"])
    limits = {name: value for name, value in options.items() if name not in names}
    known = {field.name for field in fields(Limits)}
    if unknown := sorted(limits.keys() - known):
        options_ = ", ".join(sorted(names | known))
        raise TypeError(f"evaluate has no option {unknown[0]!r}. Options are {options_}.")
    return Protocol(**protocol), Limits(**limits)


def default_folder(plan: Plan) -> Path:
    return Path("hansei-eval") / plan.id


def _start(plan: Plan, folder: Path) -> None:
    """Write the plan. Raises `EvaluationError` if the folder has one."""
    if (folder / PLAN_FILE).exists():
        raise EvaluationError(f"{folder} already has an evaluation. Pass --resume {folder}.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plan.save(folder)
    except OSError as error:
        raise EvaluationError(f"Cannot write {folder}: {error.strerror}.") from error


def run(
    plan: Plan,
    folder: Path,
    *,
    agent: str | Function | None = None,
    scorer: str | Callable[..., Any] | None = None,
    limits: Limits | None = None,
    client: Hansei | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Json:
    """Make the calls of the plan that are missing, and return the report. Raises `Stopped`, and
    without a trace in the folder, `HanseiError` if the agent or a client cannot start.
    """
    limits = limits or Limits()
    commands = Commands(limits.timeout)
    with ExitStack() as stack:
        memory = Memory(plan, None)
        if memory.uses_service:
            memory = Memory(plan, client or stack.enter_context(hansei.Hansei()))
        called = make_agent(agent or plan.agent, commands)
        scored = make_scorer(scorer or plan.scorer, plan.tasks, commands)
        if plan.stored_sha256 is None:
            memory.require_playbook()
            _start(plan, folder)
        stack.enter_context(_lock(folder))
        runner = Runner(
            plan,
            folder,
            agent=called,
            scorer=scored,
            memory=memory,
            commands=commands,
            limits=_with_prices(limits, folder),
            on_progress=on_progress,
        )
        try:
            runner.run()
        except BaseException:
            with suppress(EvaluationError):
                write_report(folder)
            raise
        return write_report(folder)


def _with_prices(limits: Limits, folder: Path) -> Limits:
    """The limits with the prices of an earlier call for this folder, unless they have others."""
    stored = read_prices(folder)
    given = {"input_price": limits.input_price, "output_price": limits.output_price}
    prices = stored | {name: price for name, price in given.items() if price is not None}
    limits = replace(limits, **prices)
    if limits.has_prices and prices != stored:
        RecordFile(folder / PRICES_FILE).append(prices)
    return limits


def write_report(folder: Path) -> Json:
    """Raises `EvaluationError`."""
    report = build_report(folder)
    try:
        text = json.dumps(report, ensure_ascii=False, indent=1)
        (folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")
        html = format_html(without_texts(report))
        (folder / HTML_FILE).write_text(html, encoding="utf-8")
    except OSError as error:
        raise EvaluationError(f"Cannot write {folder}: {error.strerror}.") from error
    return report


def _name_of(function: str | Callable[..., Any]) -> str:
    if isinstance(function, str):
        return function
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{getattr(function, '__module__', '')}.{name}"


@contextmanager
def _lock(folder: Path) -> Generator[None]:
    """Two processes must not continue the same evaluation: both would pay for its calls."""
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise EvaluationError(f"Another process is running {folder}.") from None
        yield
