"""Playbooks as wholes: in and out, settings, history, effects, review; requests, and the shapes of
what is sent and answered. Their bullets are in `bullets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from hansei.answers import Page
from hansei.bullets import Bullet, Delta, Edited
from hansei.request import API, Id, Request, at_version, encode, given, one, read, write
from hansei.routes import PAGE

Form = Literal["spec2", "spec4", "ace"]
Moment = int | str
"""A version, or a time in ISO 8601."""


class Section(TypedDict):
    name: str
    description: NotRequired[str]
    slug: NotRequired[str]


class PlaybookView(TypedDict):
    """A playbook without its bullets."""

    name: str
    project_id: str
    version: int
    active: int
    sections: list[Section]
    review: Literal["off", "required"]
    token_budget: int | None
    max_bullets: int | None
    holdout: float
    created_at: str
    updated_at: str


class Times(TypedDict):
    created_at: str
    updated_at: str


class Playbook(TypedDict):
    """A playbook with all bullets that are not deleted. `version` is for `if_match`; a playbook is
    put back as it was read.
    """

    version: int
    metadata: Times
    bullets: list[Bullet]


class Version(TypedDict):
    """One change of a playbook."""

    version: int
    change: str
    added: int
    updated: int
    removed: int
    active: int
    reason: str | None
    actor: str | None
    run_id: str | None
    created_at: str


class ChangedBullet(TypedDict):
    key: str
    before: Bullet
    after: Bullet


class Difference(TypedDict):
    """What made one version into the other."""

    from_version: int
    to_version: int
    added: list[Bullet]
    removed: list[Bullet]
    changed: list[ChangedBullet]
    sections_added: list[Section]
    sections_removed: list[Section]


class Put(TypedDict):
    """`notes` say what of the text was not kept or had to be made up. Of a dry run, `diff` is what
    would change.
    """

    version: int
    active: int
    notes: list[str]
    applied: bool
    diff: Difference | None


class Restored(TypedDict):
    """Of a dry run, `diff` is what would change."""

    version: int
    changed: bool
    applied: bool
    diff: Difference | None


class Sides(TypedDict):
    """Runs that ended, and those that were won, with a bullet and without it; `difference` of the
    rates with its 95 % interval.
    """

    with_n: int
    with_won: int
    without_n: int
    without_won: int
    with_rate: float | None
    without_rate: float | None
    difference: float | None
    low: float | None
    high: float | None


class Effect(TypedDict):
    """Only `randomised` says what a bullet causes."""

    key: str
    randomised: Sides | None
    observational: Sides | None


class Proposal(TypedDict):
    """Deltas that wait for a person, or what became of them."""

    id: str
    state: Literal["waiting", "accepted", "rejected"]
    deltas: list[Delta]
    reason: str | None
    actor: str | None
    run_id: str | None
    version: int | None
    decided_by: str | None
    decided_reason: str | None
    decided_at: str | None
    created_at: str


class PlaybookChanges(TypedDict, total=False):
    project_id: str | None
    sections: Sequence[Section]
    review: Literal["off", "required"]
    token_budget: int | None
    max_bullets: int | None
    holdout: float
    reason: str | None


def playbooks(
    *, deleted: bool = False, project_id: str | None = None, limit: int = PAGE
) -> Request[Page[PlaybookView]]:
    """The playbooks of a project, by name; or those that `restore_playbook` can bring back."""
    path = f"{API}/playbooks"
    return read(path, deleted=deleted or None, project_id=project_id, limit=limit)


def playbook(
    name: str, *, as_of: Moment | None = None, project_id: str | None = None
) -> Request[Playbook]:
    """A playbook with its bullets; `as_of` a version or a time, the texts are of then."""
    return replace(_document(name, "spec2", as_of, project_id), form="versioned")


def export_playbook(
    name: str,
    form: Form = "spec2",
    *,
    as_of: Moment | None = None,
    project_id: str | None = None,
) -> Request[str]:
    """A playbook as text: spec 2's JSON, spec 4's, or ACE's lines."""
    return replace(_document(name, form, as_of, project_id), form="text")


def _document(name: str, form: Form, as_of: Moment | None, project_id: str | None) -> Request[Any]:
    return read(one("playbooks", name), form=form, as_of=as_of, project_id=project_id)


def put_playbook(
    name: str,
    content: str | bytes | Mapping[str, Any],
    *,
    apply: bool = True,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[Put]:
    """Make the playbook what `content` says, in any form that `export_playbook` gives, or what
    `playbook` gave. Bullets that are not in it go; a restore brings them back. Without `apply`
    nothing is written, and `diff` says what would change.
    """
    sent: Request[Put] = write(
        "PUT",
        one("playbooks", name),
        params={"apply": apply, "reason": reason, "project_id": project_id},
        headers=at_version(if_match),
    )
    if isinstance(content, Mapping):
        content = encode(content)
    body = content.encode() if isinstance(content, str) else content
    return replace(sent, body=body, headers=sent.headers | {"Content-Type": "text/plain"})


def configure_playbook(
    name: str, *, if_match: int | None = None, **changes: Unpack[PlaybookChanges]
) -> Request[PlaybookView]:
    """Sections, limits, and whether deltas wait for a person (`review`, with an admin key)."""
    return write("PATCH", one("playbooks", name), changes, headers=at_version(if_match))


def delete_playbook(
    name: str,
    *,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[None]:
    """Take a playbook and its bullets away; `restore_playbook` brings both back."""
    params = {"reason": reason, "project_id": project_id}
    return write("DELETE", one("playbooks", name), params=params, headers=at_version(if_match))


def playbook_history(
    name: str, *, project_id: str | None = None, limit: int = PAGE
) -> Request[Page[Version]]:
    """Every version: who changed how much, when and why; newest first."""
    return read(one("playbooks", name, "history"), project_id=project_id, limit=limit)


def diff_playbook(
    name: str, first: Moment, last: Moment | None = None, *, project_id: str | None = None
) -> Request[Difference]:
    """What changed between two versions or times; `last` is now unless it is given."""
    path = one("playbooks", name, "diff")
    return read(path, **{"from": first}, to=last, project_id=project_id)


def restore_playbook(
    name: str,
    to: Moment,
    *,
    apply: bool = True,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[Restored]:
    """Make it what it was at a version or a time, as a new version. A deleted one comes back.
    Without `apply` nothing is written, and `diff` says what would change.
    """
    body = {"version" if isinstance(to, int) else "time": to, "apply": apply}
    return write(
        "POST",
        one("playbooks", name, "restore"),
        body | given({"reason": reason, "project_id": project_id}),
        headers=at_version(if_match),
    )


def playbook_effects(
    name: str, *, project_id: str | None = None, limit: int = PAGE
) -> Request[Page[Effect]]:
    """Outcomes with and without each bullet that was served to a run that ended, by key."""
    return read(one("playbooks", name, "effect"), project_id=project_id, limit=limit)


def proposals(
    name: str,
    *,
    state: Literal["waiting", "accepted", "rejected"] | None = None,
    project_id: str | None = None,
    limit: int = PAGE,
) -> Request[Page[Proposal]]:
    """Deltas that wait for a person, newest first, or those that were decided."""
    path = one("playbooks", name, "proposals")
    return read(path, state=state, project_id=project_id, limit=limit)


def accept_proposal(
    name: str,
    proposal_id: Id,
    *,
    apply: bool = True,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[Edited]:
    """Apply a proposal, as one version (admin key). Without `apply` nothing is written."""
    return write(
        "POST",
        one("playbooks", name, "proposals", proposal_id, "accept"),
        given({"apply": apply, "reason": reason, "project_id": project_id}),
    )


def reject_proposal(
    name: str, proposal_id: Id, *, reason: str | None = None, project_id: str | None = None
) -> Request[None]:
    """Put a proposal away (admin key)."""
    return write(
        "POST",
        one("playbooks", name, "proposals", proposal_id, "reject"),
        given({"reason": reason, "project_id": project_id}),
    )
