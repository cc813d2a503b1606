"""`hansei proposal`: list, accept and reject proposals."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.cli.commands import Client, Output, command
from hansei.cli.options import PlaybookName, Project, Reason
from hansei.cli.terminal import format_age, format_count, print_message, print_text
from hansei.models import DeltaContextItem, Proposal, ProposalState

ProposalId = Annotated[str, typer.Argument(metavar="ID", help="ID of the proposal.")]

proposal_commands = typer.Typer(
    name="proposal", help="Review proposed changes of playbooks.", no_args_is_help=True
)


@command(proposal_commands, "list")
def list_proposals(
    client: Client,
    name: Annotated[
        str | None, typer.Argument(help="Name of the playbook. Default: all of the project.")
    ] = None,
    state: Annotated[ProposalState, typer.Option(help="Only this state.")] = "waiting",
    project: Project = None,
) -> Output:
    """List the proposals of one playbook or of all, newest first in each."""
    names = [name] if name else [each.name for each in client.playbooks.list(project_id=project)]
    found = {
        each: list(client.playbooks.proposals.list(each, state=state, project_id=project))
        for each in names
    }

    def show() -> None:
        if not any(found.values()):
            print_message(f"No proposals in state '{state}'.")
        for playbook, proposals in found.items():
            if proposals and not name:
                print_text(f"{playbook}:")
            for proposal in proposals:
                _print_proposal(proposal)

    return Output({"items": [item for proposals in found.values() for item in proposals]}, show)


@command(proposal_commands, "accept")
def accept_proposal(
    client: Client,
    name: PlaybookName,
    proposal_id: ProposalId,
    reason: Reason = None,
    project: Project = None,
) -> Output:
    """Apply a proposal as one version. Requires an admin key."""
    result = client.playbooks.proposals.accept(name, proposal_id, reason=reason, project_id=project)
    changes = format_count(len(result.results), "change")
    return Output(result, f"Applied {changes}. {name} is at version {result.version}.")


@command(proposal_commands, "reject")
def reject_proposal(
    client: Client,
    name: PlaybookName,
    proposal_id: ProposalId,
    reason: Reason = None,
    project: Project = None,
) -> Output:
    """Reject a proposal. Requires an admin key."""
    client.playbooks.proposals.reject(name, proposal_id, reason=reason, project_id=project)
    return Output({"rejected": proposal_id}, "Rejected.")


def _print_proposal(proposal: Proposal) -> None:
    age = format_age(proposal.created_at)
    facts = [proposal.id, proposal.actor, age, proposal.reason]
    print_text(" · ".join(fact for fact in facts if fact), style="bold")
    for delta in proposal.deltas:
        print_text(_format_delta(delta), indent=2)
        if delta.reasoning:
            print_text(f"reason: {delta.reasoning}", indent=4, style="dim")


def _format_delta(delta: DeltaContextItem) -> str:
    keys = [delta.bullet_id, *delta.source_ids]
    target = " ".join(key for key in keys if key) or delta.section
    return " ".join(part for part in (delta.type, target, delta.content) if part)
