"""`hansei eval`: measure on your own tasks whether agents get better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

from hansei._model import Json
from hansei.cli.options import AsJson, Project
from hansei.cli.terminal import (
    format_count,
    format_usd,
    open_client,
    print_json,
    print_message,
    print_table,
    print_text,
    progress_bar,
)
from hansei.errors import EvaluationError, HanseiError
from hansei.evaluation import demo, evaluate
from hansei.evaluation.dry_run import describe_run
from hansei.evaluation.plan import Plan, Protocol, load_plan, make_plan
from hansei.evaluation.presets import PRESETS, load_preset
from hansei.evaluation.report import build_report
from hansei.evaluation.report_format import primary_label, without_texts
from hansei.evaluation.runner import Limits, Progress, Stopped
from hansei.evaluation.tasks import read_tasks
from hansei.evaluation.text_report import sections
from hansei.evaluation.wording import (
    first_pass_line,
    headline,
    plan_line,
    playbook_warning,
    protocol_line,
)

evaluation_commands = typer.Typer(
    name="eval",
    help="Measure on your own tasks whether agents get better. Start with `hansei eval demo`.",
    no_args_is_help=True,
)
DEFAULTS, LIMITS = Protocol(), Limits()
SET_VARIABLE = (
    "It inherits your environment: set secrets there. No shell runs it: for another variable, write"
    ' "env VAR=x command".'
)
RESUME_OPTIONS = frozenset(
    {"parallel", "timeout", "retries", "learn_timeout", "budget_usd", "input_price"}
    | {"output_price", "resume", "as_json", "agent", "scorer"}
)
"""What a resumed run may change: how it goes on, not what it measures. Commands may have other
secrets.
"""


def parse_arms(text: str) -> tuple[Any, ...]:
    return tuple(arm.strip() for arm in text.split(",") if arm.strip())


@evaluation_commands.command("demo")
def run_demo(
    house_rules: Annotated[
        bool,
        typer.Option(
            "--house-rules",
            help="Instead of the 40 tasks: a benchmark of 120 with 8 hidden conventions.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Decides orders, and the conventions of --house-rules.")
    ] = 1,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: hansei-eval/ID.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a report in less than a minute: 40 tasks and a scripted agent, without a key.

    With a running service, Hansei learns from the agent too. It shows the tool, not a gain.
    """
    print_message(demo.TITLE)
    problem = _why_no_service(needs_model=house_rules)
    if problem:
        print_message(f"{problem} The demonstration runs without `hansei`.")
    plan, afterwards = demo.plan_demo(with_service=not problem, house_rules=house_rules, seed=seed)
    _run(plan, output or evaluate.default_folder(plan), LIMITS, as_json=as_json)
    if not as_json:
        for line in afterwards:
            print_text(line)


def _why_no_service(*, needs_model: bool) -> str:
    """Why the service cannot learn in the demonstration, or "" if it can."""
    try:
        with open_client(timeout=5) as client:
            model = client.health.ready().model
    except HanseiError as error:
        return f"No service: {error.detail}"
    if needs_model and model and model["status"] == "none":
        return "The service has no model, and its rules learn nothing from outcomes alone."
    return ""


@evaluation_commands.command("run")
def run_evaluation(
    context: typer.Context,
    tasks: Annotated[Path | None, typer.Option(help="Tasks as JSON lines.", metavar="FILE")] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Instead of --tasks: {', '.join(PRESETS)}.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data of ACE.", metavar="FOLDER")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            help=f"Command that answers one task, or module:function. {SET_VARIABLE}",
            metavar="COMMAND",
        ),
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(
            help=f"Command or module:function that scores answers. {SET_VARIABLE}",
            metavar="COMMAND",
        ),
    ] = None,
    playbook: Annotated[
        str | None, typer.Option(help="Start from a copy of this playbook. Default: empty.")
    ] = None,
    arms: Annotated[
        str, typer.Option(help="Any of none, hansei, icl, examples, full.", metavar="A,B")
    ] = ",".join(DEFAULTS.arms),
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Tasks between two updates of the memory. Default: up to 10."),
    ] = None,
    held_out: Annotated[
        int, typer.Option(min=0, help="Leave N random tasks out of learning. They decide.")
    ] = DEFAULTS.held_out,
    second_pass: Annotated[
        bool,
        typer.Option("--second-pass/--no-second-pass", help="Answer the stream again at the end."),
    ] = DEFAULTS.second_pass,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats with new memories.")] = 1,
    seed: Annotated[int, typer.Option(help="Decides orders and the choice of tasks.")] = 1,
    order: Annotated[
        Literal["random", "file"],
        typer.Option(help="Of the stream. `file` if a rule changes halfway."),
    ] = "random",
    feedback: Annotated[
        Literal["outcome", "text", "answer"],
        typer.Option(help="What is learned: outcome; and text of the scorer; and right answer."),
    ] = DEFAULTS.feedback,
    reflect: Annotated[
        Literal["auto", "always"], typer.Option(help="Which attempts are reflected on.")
    ] = DEFAULTS.reflect,
    token_budget: Annotated[
        int | None, typer.Option(min=0, help="Of `hansei`. Default: the playbook's.")
    ] = None,
    min_match: Annotated[
        Literal["none", "weak", "strong"] | None,
        typer.Option(help="Of `hansei`, if not all bullets fit the budget. Default: none."),
    ] = None,
    icl_tokens: Annotated[int, typer.Option(min=0, help="Of `icl`.")] = DEFAULTS.icl_tokens,
    examples: Annotated[int, typer.Option(min=1, help="Of `examples`.")] = DEFAULTS.examples,
    limit: Annotated[int | None, typer.Option(min=1, help="At most N tasks of the stream.")] = None,
    limit_held_out: Annotated[
        int | None, typer.Option(min=1, help="At most N tasks with `split: held_out`.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Calls at once.")] = LIMITS.parallel,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one call.")] = LIMITS.timeout,
    retries: Annotated[int, typer.Option(min=0, help="Of a failed call.")] = LIMITS.retries,
    learn_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds for learning from one window.")
    ] = LIMITS.learn_timeout,
    budget_usd: Annotated[
        float | None, typer.Option(min=0, help="Stop before the run costs more. Needs both prices.")
    ] = None,
    input_price: Annotated[
        float | None, typer.Option(min=0, help="Dollars for a million input tokens.")
    ] = None,
    output_price: Annotated[
        float | None, typer.Option(min=0, help="Dollars for a million output tokens.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: hansei-eval/ID.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the run of this folder.", metavar="FOLDER")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check tasks and commands, show the plan; call nothing."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer tasks with and without advice, let the service learn in between, and print what the
    advice changed, with intervals.

    hansei eval run --tasks tasks.jsonl --agent "python my_agent.py" --held-out 10

    The held-out tasks decide; without any, the second pass. The service learns in a
    project of its own; your playbook does not change.
    """
    limits = Limits(
        parallel, timeout, retries, learn_timeout, budget_usd, input_price, output_price
    )
    if resume is not None:
        _check_resume_options(context)
        _run(load_plan(resume).with_commands(agent, scorer), resume, limits, as_json=as_json)
        return
    if (tasks is None) == (preset is None) or (agent is None and not dry_run):
        raise typer.BadParameter("Pass --agent and one of --tasks and --preset, or --resume.")
    protocol = Protocol(
        arms=parse_arms(arms),
        window=window,
        held_out=held_out,
        second_pass=second_pass,
        order=order,
        repeats=repeats,
        seed=seed,
        feedback=feedback,
        playbook=playbook,
        token_budget=token_budget,
        min_match=min_match,
        icl_tokens=icl_tokens,
        examples=examples,
        reflect=reflect,
        limit=limit,
        limit_held_out=limit_held_out,
    )
    if tasks is not None:
        found = read_tasks(tasks, has_scorer=scorer is not None)
    else:
        chosen = load_preset(preset or "", data, seed)
        found, scorer = chosen.tasks, chosen.scorer
        protocol = replace(protocol, window=window or chosen.window, order=chosen.order or order)
    plan = make_plan(found, protocol, agent=agent or "", scorer=scorer)
    if dry_run:
        _show_plan(plan, limits, as_json=as_json)
        return
    _run(plan, output or evaluate.default_folder(plan), limits, as_json=as_json)


@evaluation_commands.command("report")
def show_report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")], as_json: AsJson = False
) -> None:
    """Print the report of a run again."""
    report = build_report(folder)
    print_json(report) if as_json else print_report(report)


@evaluation_commands.command("publish")
def publish_report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")], project: Project = None
) -> None:
    """Send the report of a run to the service: the page Evaluations of the console shows it.

    The project is `default` unless you pass one that has traces or memories.

    The report has the IDs of your tasks and the command of your agent, with … for each word that
    has a = or a space. It has no texts of tasks, answers and errors. Publishing the same run again
    replaces it.
    """
    report = without_texts(build_report(folder))
    with open_client() as client:
        published = client.evaluation_reports.create(report=report, project_id=project)
        print_text(f"Published: {client.url}/console/evaluations/{published.id}")


def _check_resume_options(context: typer.Context) -> None:
    given: list[str] = []
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and option.name not in RESUME_OPTIONS:
            given.append(option.opts[0])
    if given:
        raise typer.BadParameter(
            f"--resume takes tasks and protocol from its folder. Leave out {', '.join(given)}."
        )


def _resume_command(folder: Path, limits: Limits) -> str:
    budget = "" if limits.budget_usd is None else " --budget-usd N"
    return f"hansei eval run --resume {folder}{budget}"


def _run(plan: Plan, folder: Path, limits: Limits, *, as_json: bool) -> None:
    bar = progress_bar(
        MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[money]}")
    )
    try:
        with bar:
            shown = bar.add_task("starting", total=plan.to_json()["calls"], money="")

            def update(progress: Progress) -> None:
                bar.update(
                    shown,
                    completed=progress.done,
                    description=progress.status,
                    money=_money(progress),
                )

            report = evaluate.run(plan, folder, limits=limits, on_progress=update)
    except Stopped as error:
        error.detail += f" All answers are in {folder}. Continue: {_resume_command(folder, limits)}"
        raise
    except KeyboardInterrupt:
        again = _resume_command(folder, limits)
        message = f"Stopped. All answers are in {folder}. Continue: {again}"
        raise EvaluationError(message) from None
    if as_json:
        print_json(report)
    else:
        print_report(report)
        print_text(f"Folder: {folder}. Send {folder / evaluate.HTML_FILE} to a colleague.")


def _money(progress: Progress) -> str:
    if progress.usd is None or not progress.done:
        return ""
    left = progress.usd / progress.done * (progress.total - progress.done)
    return f"{format_usd(progress.usd)} spent, about {format_usd(left)} to go"


def print_report(report: Json) -> None:
    print_text(headline(report), style="bold")
    if learning := first_pass_line(report):
        print_text(learning)
    for note in report["notes"]:
        print_text(note, style="bold red")
    for section in sections(report):
        print_text()
        print_text(section.title, style="bold")
        if section.rows:
            print_table(section.header, section.rows)
        for line in section.lines:
            print_text(line, style="dim")
    print_text()
    print_text(plan_line(report), style="dim")


def _show_plan(plan: Plan, limits: Limits, *, as_json: bool) -> None:
    """What a run would do, and whether the right answers score as right."""
    run = describe_run(plan)
    if as_json:
        print_json(run)
        return
    found = ", ".join(run["found"]) or "no command"
    print_text(f"Valid: {format_count(len(plan.tasks), 'task')}. Found: {found}.")
    print_text("Nothing was called, so whether agent and scorer work is not checked.")
    print_text(protocol_line(run, run["tasks"], primary_label(*run["primary"])))
    if warning := playbook_warning(run["protocol"]):
        print_text(warning, style="bold red")
    if plan.agent:
        print_text(f"SHA-256 of the plan without ID and time: {run['repeated_sha256']}")
    rows = [
        [row["arm"], *(_tokens(row[name]) for name in ("calls", "task_tokens", "advice_tokens"))]
        for row in run["arms"]
    ]
    print_table(("arm", "calls", "tokens of tasks", "of advice, at most about"), rows)
    print_text(
        "Tokens are estimates. Your agent adds its own prompt and its answers, and the model of the"
        " service reads the attempts of `hansei`.",
        style="dim",
    )
    wrong, checked = run["expected_scores_wrong"], run["expected_checked"]
    if checked:
        print_text(f"Expected answers that score as right: {checked - len(wrong)} of {checked}.")
    if wrong:
        print_message(f"These expected answers score as wrong: {', '.join(wrong[:10])}.")
    if limits.budget_usd is not None and not limits.has_prices:
        print_message(
            "--budget-usd needs what an answer costs: pass --input-price and --output-price, or let"
            " the agent return `usage.usd`. Otherwise the run stops after its first answers."
        )


def _tokens(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
