"""`hansei agent`: ask the agent, list its runs, answer its questions, judge its answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.options import AsJson, Limit, Project
from hansei.cli.terminal import format_age, open_client, print_json, print_message, print_text
from hansei.models import AgentRun, AgentRunState, Intervention, InterventionAction

ENDED = ("done", "failed", "cancelled")
NEEDS_TEXT = ("input", "modify")
WAITING_STATUS = 3
"""Exit status of a command whose run waits for a person."""
PLAN_FIELDS: Final = (
    *("step_id", "action", "description", "query", "collection", "depends_on", "fallback"),
)

AgentRunId = Annotated[str, typer.Argument(metavar="ID", help="ID of the agent run.")]


agent_commands = typer.Typer(
    name="agent",
    help="Ask questions about your documents (GRACE).",
    no_args_is_help=True,
)


@agent_commands.command("run")
def run_agent(
    question: Annotated[str, typer.Argument(metavar="QUESTION")],
    playbook: Annotated[str | None, typer.Option(help="The playbook that it follows.")] = None,
    collection: Annotated[
        list[str] | None, typer.Option(help="Search this collection only. Repeatable.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Carry out this plan, a JSON file with `steps`.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Print the plan as JSON and do not carry it out.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="The run that this question follows up on.")
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Ask the agent. It asks back in the terminal if it is not sure; in a script, the command then
    exits with status 3.
    """
    with open_client() as client:
        run = client.agents.runs.create(
            question,
            playbook=playbook,
            collections=collection or None,
            plan=None if plan is None else _read_plan(plan),
            confirm_plan=True if plan_only else None,
            previous_run_id=after,
            project_id=project,
        )
        run = _follow(client, run, 0, as_json or plan_only)
        if plan_only and run.state == "waiting":
            client.agents.runs.cancel(run.id)
            steps = [{name: getattr(step, name) for name in PLAN_FIELDS} for step in run.steps]
            print_json({"steps": steps})
            return
    _print_result(run, as_json)


def _read_plan(path: Path) -> Mapping[str, Any]:
    try:
        plan: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="--plan") from error
    if not isinstance(plan, dict):
        raise typer.BadParameter("The file must have an object with `steps`.", param_hint="--plan")
    return cast("dict[str, Any]", plan)


@command(agent_commands, "list")
def list_agent_runs(
    client: Client,
    state: Annotated[
        AgentRunState | None, typer.Option(help="Only this state, for example waiting.")
    ] = None,
    limit: Limit = 20,
    project: Project = None,
) -> Output:
    """List runs of the agent, newest first."""
    runs = client.agents.runs.list(project_id=project, state=state, limit=limit + 1)
    return listing(runs, "No runs found.", each=_print_line, limit=limit)


def _print_line(run: AgentRun) -> None:
    print_text(f"{run.id} · {run.state} · {format_age(run.created_at)} · {run.query}")


@command(agent_commands, "show")
def show_agent_run(client: Client, agent_run_id: AgentRunId) -> Output:
    """Show a run with its steps, its answer and its open question."""
    run = client.agents.runs.get(agent_run_id)

    def show() -> None:
        print_text(run.query)
        for step in run.steps:
            sure = "" if step.confidence is None else f", confidence {step.confidence:.2f}"
            print_text(f"{step.step_id}. {step.action}: {step.state}{sure}", style="dim")
        _print_run(run)

    return Output(run, show)


@agent_commands.command("answer")
def answer_agent(
    agent_run_id: AgentRunId,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="ACTION",
            help="One of the actions that the question offers. Without it, the terminal asks.",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="The text of input or modify.")] = None,
    as_json: AsJson = False,
) -> None:
    """Answer the open question of a run, and follow the run."""
    with open_client() as client:
        run = client.agents.runs.get(agent_run_id)
        question = run.intervention
        if question is None:
            print_message(f"{_describe_state(run)} It asks nothing.")
            raise typer.Exit(1)
        seen = [event.id for event in client.agents.runs.follow(agent_run_id)]
        if action is None and sys.stdin.isatty():
            action, text = _prompt(question)
        if action not in question.options:
            raise typer.BadParameter(
                f"Choose one of: {', '.join(question.options)}.", param_hint="ACTION"
            )
        run = client.agents.runs.interventions.answer(
            run.id, question.id, cast(InterventionAction, action), input=text
        )
        run = _follow(client, run, seen[-1], as_json)
    _print_result(run, as_json)


@command(agent_commands, "cancel")
def cancel_agent_run(client: Client, agent_run_id: AgentRunId) -> Output:
    """Cancel a run. A run that has ended stays as it is."""
    run = client.agents.runs.cancel(agent_run_id)
    return Output(run, _describe_state(run))


@command(agent_commands, "feedback")
def record_feedback(
    client: Client,
    agent_run_id: AgentRunId,
    right: Annotated[bool, typer.Option("--right/--wrong", help="Whether the answer was right.")],
    answer: Annotated[str | None, typer.Option(help="The right answer.")] = None,
) -> Output:
    """Say whether an answer was right. The agent learns from it."""
    verdict = "right" if right else "wrong"
    run = client.agents.runs.record_feedback(agent_run_id, verdict, answer=answer)
    return Output(run, f"Recorded: the answer was {verdict}.")


def _follow(client: Client, run: AgentRun, after: int, as_json: bool) -> AgentRun:
    """Print the events after a number until the run has ended, or asks and nobody can answer."""
    while run.state not in ENDED:
        for event in client.agents.runs.follow(run.id, after=after):
            after = event.id
            if not as_json:
                _print_event(event.event, event.data)
        run = client.agents.runs.get(run.id)
        question = run.intervention
        if run.state != "waiting" or question is None:
            continue
        if as_json or not sys.stdin.isatty():
            break
        action, text = _prompt(question)
        client.agents.runs.interventions.answer(
            run.id, question.id, cast(InterventionAction, action), input=text
        )
    return run


def _prompt(question: Intervention) -> tuple[str, str | None]:
    print_text(question.message)
    options = question.options
    action = ""
    while action not in options:
        default = options[0]
        action = typer.prompt(f"{' / '.join(options)}", default=default).strip()
    return action, typer.prompt("Text") if action in NEEDS_TEXT else None


def _print_event(kind: str, data: dict[str, Any]) -> None:
    if kind == "step_started":
        print_text(f"{data['step_id']}. {data['action']}: {data['description']}", style="dim")
    elif kind == "step_finished":
        print_text(f"confidence {data['confidence']:.2f}", indent=3, style="dim")
    elif kind == "step_failed":
        print_text(f"failed: {data['error']}", indent=3, style="dim")
    elif kind == "step_inserted":
        print_text(f"{data['description']}", style="dim")
    elif kind == "cost_unknown":
        print_text(f"The price of {data['model']} is unknown: the cost limit does not apply.")
    elif kind == "budget_warning":
        print_text(f"Near the limit of the run: {', '.join(sorted(data.keys() - {'at'}))}.")
    elif kind == "replanned":
        print_text(f"New plan ({data['strategy']}).", style="dim")


def _print_result(run: AgentRun, as_json: bool) -> None:
    """Exits with status 1 if the run has failed or was cancelled, and with 3 if it waits."""
    if as_json:
        print_json(run)
    else:
        _print_run(run)
    if run.state == "waiting":
        raise typer.Exit(WAITING_STATUS)
    if run.state != "done":
        raise typer.Exit(1)


def _describe_state(run: AgentRun) -> str:
    return "The run has failed." if run.state == "failed" else f"The run is {run.state}."


def _print_run(run: AgentRun) -> None:
    question = run.intervention
    if run.state == "waiting" and question is not None:
        print_text(question.message)
        options = (f'{o} --text "…"' if o in NEEDS_TEXT else o for o in question.options)
        print_message(f"The run waits for an answer: hansei agent answer {run.id} ACTION")
        print_message(f"ACTION is one of: {', '.join(options)}.")
        return
    if run.answer is None:
        print_text(f"{_describe_state(run)} {run.error['message'] if run.error else ''}")
        return
    print_text(run.answer)
    for number, source in enumerate(run.sources, start=1):
        page = f", page {source['page']}" if source.get("page") else ""
        print_text(f"[{number}] {source.get('title') or source['source']}{page}", style="dim")
    if run.confidence is not None:
        print_text(f"Confidence {run.confidence:.2f}. Run {run.id}.", style="dim")
