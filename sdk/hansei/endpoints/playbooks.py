"""Requests about playbooks: content, settings, versions, effects and proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from hansei._request import (
    API,
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    encode_json,
    get_request,
    if_match_header,
    write_request,
)
from hansei.endpoints.bullets import ApplyDeltasResponse, Bullet, Delta
from hansei.types import Page, Run

PlaybookFormat = Literal["bullets", "sections", "ace"]
ReviewMode = Literal["off", "required"]
ProposalState = Literal["waiting", "accepted", "rejected"]
LessonDecision = Literal["added", "updated", "merged", "already_known", "proposed", "rejected"]
PointInTime = int | str
"""A version number or an ISO 8601 time."""


class SectionDefinition(TypedDict):
    name: str
    description: NotRequired[str]
    slug: NotRequired[str]


class PlaybookSummary(TypedDict):
    """A playbook without its bullets."""

    name: str
    project_id: str
    version: int
    active_bullet_count: int
    sections: list[SectionDefinition]
    review_mode: ReviewMode
    token_budget: int | None
    max_bullets: int | None
    holdout_share: float
    focus: str | None
    created_at: str
    updated_at: str


class PlaybookMetadata(TypedDict):
    created_at: str
    updated_at: str


class Playbook(TypedDict):
    """A playbook with all bullets that are not deleted.

    Pass it to `replace_playbook` to store it again, with `version` as `if_match`.
    """

    version: int
    metadata: PlaybookMetadata
    bullets: list[Bullet]


class PlaybookVersion(TypedDict):
    """One change of a playbook."""

    version: int
    change_type: str
    added_count: int
    updated_count: int
    removed_count: int
    active_bullet_count: int
    reason: str | None
    actor: str | None
    run_id: str | None
    created_at: str


class ChangedBullet(TypedDict):
    key: str
    before: Bullet
    after: Bullet


class PlaybookDiff(TypedDict):
    """The changes from one version to another."""

    from_version: int
    to_version: int
    added: list[Bullet]
    removed: list[Bullet]
    changed: list[ChangedBullet]
    sections_added: list[SectionDefinition]
    sections_removed: list[SectionDefinition]


class ReplacePlaybookResponse(TypedDict):
    """`notes` name the parts of the content that were dropped or generated.

    A dry run has `diff`: the changes that it would make.
    """

    version: int
    active_bullet_count: int
    notes: list[str]
    applied: bool
    diff: PlaybookDiff | None


class RestorePlaybookResponse(TypedDict):
    """A dry run has `diff`: the changes that it would make."""

    version: int
    changed: bool
    applied: bool
    diff: PlaybookDiff | None


class Side(TypedDict):
    """Finished agent runs. `rate` is the share of successes, None without runs."""

    runs: int
    successes: int
    rate: float | None


class Interval(TypedDict):
    low: float | None
    high: float | None


OutcomeComparison = TypedDict(
    "OutcomeComparison",
    {"with": Side, "without": Side, "difference": float | None, "interval": Interval},
)
"""Agent runs with and without a bullet. `difference` is the rate with it minus the rate without it,
`interval` its 95 % interval."""


class BulletEffect(TypedDict):
    """Only `randomized` measures a causal effect."""

    key: str
    status: str
    randomized: OutcomeComparison | None
    observational: OutcomeComparison | None


class Proposal(TypedDict):
    """Deltas that wait for review, or the decision on them."""

    id: str
    state: ProposalState
    deltas: list[Delta]
    reason: str | None
    actor: str | None
    run_id: str | None
    accepted_version: int | None
    decided_by: str | None
    decision_reason: str | None
    decided_at: str | None
    created_at: str


class CuratedLesson(TypedDict):
    """The decision of the curator on one lesson."""

    memory_id: str | None
    text: str | None
    decision: LessonDecision
    key: str | None
    reason: str | None
    run_id: str | None
    decided_at: str


class UpdatePlaybookOptions(TypedDict, total=False):
    """A setting that is not given is unchanged. None clears a limit."""

    project_id: str | None
    sections: Sequence[SectionDefinition]
    review_mode: ReviewMode
    token_budget: int | None
    max_bullets: int | None
    holdout_share: float
    focus: str | None
    reason: str | None


def list_playbooks(
    *, deleted: bool = False, project_id: str | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[PlaybookSummary]]:
    """List the playbooks of a project by name, or the deleted ones. `limit` is the page size."""
    path = f"{API}/playbooks"
    return get_request(path, deleted=deleted or None, project_id=project_id, limit=limit)


def get_playbook(
    name: str, *, as_of: PointInTime | None = None, project_id: str | None = None
) -> Request[Playbook]:
    """Get a playbook with its bullets, by default the current version."""
    document = _document_request(name, "bullets", as_of, project_id)
    return replace(document, response_format="json_with_version")


def export_playbook(
    name: str,
    format: PlaybookFormat = "bullets",
    *,
    as_of: PointInTime | None = None,
    project_id: str | None = None,
) -> Request[str]:
    """Get a playbook as text in one of three formats. `replace_playbook` reads all of them."""
    return replace(_document_request(name, format, as_of, project_id), response_format="text")


def _document_request(
    name: str, format: PlaybookFormat, as_of: PointInTime | None, project_id: str | None
) -> Request[Any]:
    return get_request(
        api_path("playbooks", name), format=format, as_of=as_of, project_id=project_id
    )


def replace_playbook(
    name: str,
    content: str | bytes | Mapping[str, Any],
    *,
    dry_run: bool = False,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[ReplacePlaybookResponse]:
    """Create a playbook or replace its content.

    `content` is text in any format of `export_playbook`, or the result of `get_playbook`. Bullets
    that it does not contain are deleted; `restore_playbook` undoes this. With `dry_run` nothing is
    written and `diff` shows the changes.
    """
    request: Request[ReplacePlaybookResponse] = write_request(
        "PUT",
        api_path("playbooks", name),
        params={"dry_run": dry_run or None, "reason": reason, "project_id": project_id},
        headers=if_match_header(if_match),
    )
    if isinstance(content, Mapping):
        content = encode_json(content)
    body = content.encode() if isinstance(content, str) else content
    return replace(request, body=body, headers=request.headers | {"Content-Type": "text/plain"})


def update_playbook(
    name: str, *, if_match: int | None = None, **options: Unpack[UpdatePlaybookOptions]
) -> Request[PlaybookSummary]:
    """Change the sections, limits or review mode of a playbook.

    The review mode requires an admin key.
    """
    headers = if_match_header(if_match)
    return write_request("PATCH", api_path("playbooks", name), options, headers=headers)


def delete_playbook(
    name: str,
    *,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[None]:
    """Delete a playbook and its bullets. `restore_playbook` undoes this."""
    params = {"reason": reason, "project_id": project_id}
    headers = if_match_header(if_match)
    return write_request("DELETE", api_path("playbooks", name), params=params, headers=headers)


def list_playbook_versions(
    name: str, *, project_id: str | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[PlaybookVersion]]:
    """List the versions of a playbook, newest first. `limit` is the page size."""
    return get_request(api_path("playbooks", name, "versions"), project_id=project_id, limit=limit)


def diff_playbook(
    name: str,
    from_version: PointInTime,
    to_version: PointInTime | None = None,
    *,
    project_id: str | None = None,
) -> Request[PlaybookDiff]:
    """Compare two versions or times of a playbook. `to_version` is the current one by default."""
    path = api_path("playbooks", name, "diff")
    return get_request(path, **{"from": from_version}, to=to_version, project_id=project_id)


def restore_playbook(
    name: str,
    to: PointInTime,
    *,
    dry_run: bool = False,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[RestorePlaybookResponse]:
    """Restore the content of a version or time as a new version, also after a deletion.

    With `dry_run` nothing is written and `diff` shows the changes.
    """
    body: dict[str, Any] = {"version" if isinstance(to, int) else "time": to}
    return write_request(
        "POST",
        api_path("playbooks", name, "restore"),
        body | drop_none({"reason": reason, "project_id": project_id}),
        params={"dry_run": dry_run or None},
        headers=if_match_header(if_match),
    )


def list_bullet_effects(
    name: str,
    *,
    since: str | None = None,
    until: str | None = None,
    project_id: str | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[BulletEffect]]:
    """List outcomes with and without each bullet, by key, for retrievals from `since` to `until`
    (ISO 8601 times). `limit` is the page size.
    """
    path = api_path("playbooks", name, "effects")
    return get_request(path, since=since, until=until, project_id=project_id, limit=limit)


def list_lessons(
    name: str,
    *,
    decision: LessonDecision | None = None,
    project_id: str | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[CuratedLesson]]:
    """List the decisions of the curator on lessons, the last first. `limit` is the page size."""
    path = api_path("playbooks", name, "lessons")
    return get_request(path, decision=decision, project_id=project_id, limit=limit)


def consolidate_playbook(name: str, *, project_id: str | None = None) -> Request[Run]:
    """Queue a run that merges bullets with the same advice."""
    path = api_path("playbooks", name, "consolidate")
    return write_request("POST", path, params=drop_none({"project_id": project_id}))


def list_proposals(
    name: str,
    *,
    state: ProposalState | None = None,
    project_id: str | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[Proposal]]:
    """List the proposals of a playbook, newest first. `limit` is the page size."""
    path = api_path("playbooks", name, "proposals")
    return get_request(path, state=state, project_id=project_id, limit=limit)


def accept_proposal(
    name: str,
    proposal_id: Id,
    *,
    dry_run: bool = False,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[ApplyDeltasResponse]:
    """Apply a proposal as one version. Requires an admin key. With `dry_run` nothing is written."""
    return write_request(
        "POST",
        api_path("playbooks", name, "proposals", proposal_id, "accept"),
        drop_none({"reason": reason, "project_id": project_id}),
        params={"dry_run": dry_run or None},
    )


def reject_proposal(
    name: str, proposal_id: Id, *, reason: str | None = None, project_id: str | None = None
) -> Request[None]:
    """Reject a proposal. Requires an admin key."""
    return write_request(
        "POST",
        api_path("playbooks", name, "proposals", proposal_id, "reject"),
        drop_none({"reason": reason, "project_id": project_id}),
    )
