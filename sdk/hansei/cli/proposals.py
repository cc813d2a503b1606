"""`hansei proposal`: list, accept and reject proposals."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.cli.options import AsJson, PlaybookName, Project, Reason, open_playbook_client
from hansei.cli.terminal import (
    format_age,
    format_count,
    print_json,
    print_message,
    print_text,
)
from hansei.models import DeltaContextItem, Proposal, ProposalState

ProposalId = Annotated[str, typer.Argument(metavar="ID", help="ID of the proposal.")]

proposal_commands = typer.Typer(
    name="proposal", help="Review proposed changes of playbooks.", no_args_is_help=True
)


@proposal_commands.command("list")
def list_proposals(
    name: Annotated[
        str | None, typer.Argument(help="Name of the playbook. Default: all of the project.")
    ] = None,
    state: Annotated[ProposalState, typer.Option(help="Only this state.")] = "waiting",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the proposals of one playbook or of all, newest first in each."""
    with open_playbook_client() as client:
        names = [name] if name else [p.name for p in client.playbooks.list(project_id=project)]
        found = {
            each: list(client.playbooks.proposals.list(each, state=state, project_id=project))
            for each in names
        }
    if as_json:
        print_json({"items": [proposal for proposals in found.values() for proposal in proposals]})
        return
    if not any(found.values()):
        print_message(f"No proposals in state '{state}'.")
    for playbook, proposals in found.items():
        if proposals and not name:
            print_text(f"{playbook}:")
        for proposal in proposals:
            _print_proposal(proposal)


@proposal_commands.command("accept")
def accept_proposal(
    name: PlaybookName,
    proposal_id: ProposalId,
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Apply a proposal as one version. Requires an admin key."""
    with open_playbook_client() as client:
        result = client.playbooks.proposals.accept(
            name, proposal_id, reason=reason, project_id=project
        )
    if as_json:
        print_json(result)
    else:
        changes = format_count(len(result.results), "change")
        print_text(f"Applied {changes}. {name} is at version {result.version}.")


@proposal_commands.command("reject")
def reject_proposal(
    name: PlaybookName,
    proposal_id: ProposalId,
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Reject a proposal. Requires an admin key."""
    with open_playbook_client() as client:
        client.playbooks.proposals.reject(name, proposal_id, reason=reason, project_id=project)
    if as_json:
        print_json({"rejected": proposal_id})
    else:
        print_text("Rejected.")


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
