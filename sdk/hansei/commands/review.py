"""`hansei playbook proposals`, `accept` and `reject`: changes that wait for a person."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hansei.bullets import Delta
from hansei.commands.playbook import AsJson, Name, Project, Reason, looking
from hansei.playbooks import Proposal
from hansei.terminal import ago, count, say, show, show_json

Id = Annotated[str, typer.Argument(metavar="ID", help="As `proposals` shows it.")]
State = Literal["waiting", "accepted", "rejected"]


def proposals(
    name: Name,
    state: Annotated[State, typer.Option(help="Or those that were decided.")] = "waiting",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the changes that wait for a person, where a playbook asks for review."""
    with looking() as client:
        found = list(client.proposals(name, state=state, project_id=project))
    if as_json:
        show_json({"items": found})
    elif not found:
        say(f"No proposal is {state}.")
    for proposal in () if as_json else found:
        _show(proposal)


def accept(
    name: Name,
    proposal: Id,
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Apply a proposal, as one version (admin key)."""
    with looking() as client:
        done = client.accept_proposal(name, proposal, reason=reason, project_id=project)
    if as_json:
        show_json(done)
    else:
        changes = count(len(done["results"]), "change")
        show(f"{changes} accepted: {name} is at version {done['version']}.")


def reject(
    name: Name,
    proposal: Id,
    reason: Reason = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Put a proposal away (admin key)."""
    with looking() as client:
        client.reject_proposal(name, proposal, reason=reason, project_id=project)
    if as_json:
        show_json({"rejected": proposal})
    else:
        show("Rejected.")


def _show(proposal: Proposal) -> None:
    facts = [proposal["id"], proposal["actor"], ago(proposal["created_at"]), proposal["reason"]]
    show(" · ".join(fact for fact in facts if fact), style="bold")
    for delta in proposal["deltas"]:
        show(_said(delta), indent=2)
        if delta.get("reasoning"):
            show(f"because: {delta.get('reasoning')}", indent=4, style="dim")


def _said(delta: Delta) -> str:
    keys = [delta.get("bullet_id"), *delta.get("source_ids", ())]
    where = " ".join(key for key in keys if key) or delta.get("section", "")
    return " ".join(part for part in (delta["type"], where, delta.get("content")) if part)
