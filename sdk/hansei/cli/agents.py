"""`hansei agent`: ask the agent, answer its questions, and say whether it was right."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hansei.cli.options import AsJson, Project
from hansei.cli.terminal import open_client, print_json, print_message, print_text
from hansei.endpoints.agents import AgentRun, Intervention, InterventionAction

if TYPE_CHECKING:
    from hansei.client import Hansei

ENDED = ("done", "failed", "cancelled")
NEEDS_TEXT = ("input", "modify")

agent_commands = typer.Typer(
    name="agent",
    help="Ask an agent that plans, searches, answers and asks.",
    no_args_is_help=True,
)


@agent_commands.command("run")
def run_agent(
    question: Annotated[str, typer.Argument(metavar="QUESTION")],
    playbook: Annotated[str | None, typer.Option(help="The playbook that it follows.")] = None,
    collection: Annotated[
        list[str] | None, typer.Option(help="Search this collection only. Repeatable.")
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Ask the agent. It asks back in the terminal if it is not sure."""
    with open_client() as client:
        run = client.create_agent_run(
            question, playbook=playbook, collections=collection or None, project_id=project
        )
        after = 0
        while run["state"] not in ENDED:
            for event in client.follow_agent_run(run["id"], after=after):
                after = event["id"]
                if not as_json:
                    _print_event(event["event"], event["data"])
            run = client.get_agent_run(run["id"])
            if run["state"] == "waiting" and not _answer(client, run):
                break
    if as_json:
        print_json(run)
    else:
        _print_run(run)
    if run["state"] not in ("done", "waiting"):
        raise typer.Exit(1)


@agent_commands.command("feedback")
def record_feedback(
    agent_run_id: Annotated[str, typer.Argument(metavar="ID")],
    right: Annotated[bool, typer.Option("--right/--wrong", help="Whether the answer was right.")],
    answer: Annotated[str | None, typer.Option(help="The right answer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether an answer was right. The agent learns from it."""
    with open_client() as client:
        verdict = "right" if right else "wrong"
        run = client.record_agent_feedback(agent_run_id, verdict, answer=answer)
    if as_json:
        print_json(run)
    else:
        print_text(f"Recorded: the answer was {verdict}.")


def _answer(client: Hansei, run: AgentRun) -> bool:
    """Ask in the terminal. False if nobody is there to answer."""
    question = run["intervention"]
    if question is None:
        return True
    if not sys.stdin.isatty():
        print_message(f"The run {run['id']} waits for an answer: {question['message']}")
        return False
    action, text = _prompt(question)
    client.answer_intervention(
        run["id"], question["id"], cast(InterventionAction, action), input=text
    )
    return True


def _prompt(question: Intervention) -> tuple[str, str | None]:
    print_text(question["message"])
    options = question["options"]
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
    elif kind == "budget_warning":
        print_text(f"Near the limit of the run: {', '.join(sorted(data.keys() - {'at'}))}.")
    elif kind == "replanned":
        print_text(f"New plan ({data['strategy']}).", style="dim")


def _print_run(run: AgentRun) -> None:
    if run["answer"] is None:
        print_text(f"The run is {run['state']}. {run['error']['message'] if run['error'] else ''}")
        return
    print_text(run["answer"])
    for number, source in enumerate(run["sources"], start=1):
        page = f", page {source['page']}" if source.get("page") else ""
        print_text(f"[{number}] {source.get('title') or source['source']}{page}", style="dim")
    if run["confidence"] is not None:
        print_text(f"Confidence {run['confidence']:.2f}. Run {run['id']}.", style="dim")
