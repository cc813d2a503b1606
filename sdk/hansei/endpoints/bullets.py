"""Requests about the bullets of a playbook: search, render, edit and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from hansei._request import (
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    get_request,
    if_match_header,
    query_request,
    write_request,
)
from hansei.types import Json, Match, MemoryStatus, Page, SearchOptions, VerdictTag

DeltaType = Literal["ADD", "UPDATE", "DELETE", "MERGE", "KEEP"]


class Bullet(TypedDict):
    """One entry of a playbook. `id` is its key, for example `mis-00001`."""

    id: str
    section: str
    content: str
    searchable_text: NotRequired[str]
    keywords: NotRequired[list[str]]
    helpful: NotRequired[int]
    harmful: NotRequired[int]
    source_trajectory: NotRequired[str]
    neutral: NotRequired[int]
    when_to_use: NotRequired[str]
    title: NotRequired[str]
    tags: NotRequired[list[str]]
    status: NotRequired[str]
    pinned: NotRequired[bool]
    awaiting_confirmation: NotRequired[bool]
    confidence_score: NotRequired[float]


class StoredBullet(Bullet):
    """`version` is the playbook version of its last change."""

    memory_id: str
    usefulness: float
    version: int | None
    created_at: str
    updated_at: str


class BulletVersion(TypedDict):
    """A bullet after one change. `change_type` is created, changed, merged, quarantined, released,
    archived, deleted or restored.
    """

    revision: int
    playbook_version: int | None
    change_type: str
    merged_into: str | None
    section: str | None
    title: str | None
    when_to_use: str | None
    content: str
    tags: list[str]
    status: str
    pinned: bool
    reason: str | None
    actor: str | None
    run_id: str | None
    created_at: str


class BulletReceipt(TypedDict):
    """`version` is the playbook version after the change."""

    version: int
    bullet: Bullet
    sanitized: bool


class BulletHit(TypedDict):
    """The scores are the terms of the combined score."""

    bullet: Bullet
    vector_score: float
    bm25_score: float
    combined_score: float
    match: Match | None
    explain: dict[str, float | int | str | None] | None


class SearchBulletsResponse(TypedDict):
    """Send `retrieval_id` with the trace of the agent run that uses the bullets."""

    results: list[BulletHit]
    version: int
    retrieval_id: str


class RenderPlaybookResponse(TypedDict):
    """`text` goes into the prompt. Send `retrieval_id` and the cited keys with the trace."""

    text: str
    bullet_keys: list[str]
    tokens: int
    version: int
    retrieval_id: str
    left_out: int
    held_out: str | None
    advice_held_out: bool


class Delta(TypedDict):
    """One edit. ADD generates a new key. MERGE combines `source_ids` into `bullet_id`."""

    type: DeltaType
    section: NotRequired[str]
    bullet_id: NotRequired[str | None]
    content: NotRequired[str]
    reasoning: NotRequired[str]
    source_ids: NotRequired[list[str]]
    when_to_use: NotRequired[str | None]
    title: NotRequired[str | None]
    keywords: NotRequired[list[str] | None]
    tags: NotRequired[list[str] | None]


class DeltaResult(TypedDict):
    """The result of the delta at position `index`."""

    index: int
    type: DeltaType
    action: Literal["added", "updated", "merged", "deleted", "kept", "rejected"]
    key: str | None
    reason: str
    before: Bullet | None
    after: Bullet | None
    absorbed: list[Bullet]


class ApplyDeltasResponse(TypedDict):
    """If `held` is true, the deltas wait for review as `proposal_id`."""

    version: int
    applied: bool
    held: bool
    proposal_id: str | None
    results: list[DeltaResult]
    sanitized: bool


class Verdict(TypedDict):
    """What one judge says about a bullet, in the trace `trace_id` if it is set."""

    id: str
    judge: Literal["human", "llm", "outcome"]
    tag: VerdictTag
    reason: str | None
    evidence: Json
    confirmed: bool
    trace_id: str | None
    retrieval_id: str | None
    actor: str | None
    created_at: str
    updated_at: str


class RecordVerdictResponse(TypedDict):
    """`key` is the bullet that received the verdict. `is_counted`: its counters include it."""

    verdict: Verdict
    key: str
    is_counted: bool
    quarantined: bool
    bullet: Bullet
    sanitized: bool


class ProvenanceLink(TypedDict):
    """One link between a bullet and the events that it was learned from."""

    source_id: str
    relation: str
    target_kind: str
    target_id: str
    depth: int
    kind: str | None
    key: str | None
    content: str | None
    trace_id: str | None
    task_description: str | None
    outcome: str | None
    source_event_ids: list[str]
    events: list[Json]


class Provenance(TypedDict):
    key: str
    memory_id: str
    links: list[ProvenanceLink]


class SearchBulletsOptions(SearchOptions, total=False):
    """`min_confidence` is 0.3 by default."""


class RenderPlaybookOptions(TypedDict, total=False):
    project_id: str | None
    token_budget: int | None
    top_k: int | None
    sections: Sequence[str] | None
    format: Literal["prompt", "ace"] | None
    min_match: Match | None
    holdout_share: float | None
    session_id: str | None


class CreateBulletOptions(TypedDict, total=False):
    project_id: str | None
    section: str | None
    when_to_use: str | None
    title: str | None
    keywords: Sequence[str] | None
    tags: Sequence[str] | None
    pinned: bool | None
    reason: str | None


class UpdateBulletOptions(TypedDict, total=False):
    """A field that is not given is unchanged."""

    project_id: str | None
    content: str
    section: str
    when_to_use: str
    title: str
    keywords: Sequence[str]
    tags: Sequence[str]
    status: MemoryStatus
    pinned: bool
    reason: str | None


class RecordVerdictOptions(TypedDict, total=False):
    judge: Literal["human", "llm"] | None
    project_id: str | None
    reason: str | None
    trace_id: Id | None
    retrieval_id: Id | None


def search_bullets(
    name: str, query_text: str = "", **options: Unpack[SearchBulletsOptions]
) -> Request[SearchBulletsResponse]:
    """Search the bullets of a playbook, best first. Without a query, the most useful first."""
    body = {"query_text": query_text, **drop_none(options)}
    return query_request(api_path("playbooks", name, "search"), body)


def render_playbook(
    name: str, query_text: str = "", **options: Unpack[RenderPlaybookOptions]
) -> Request[RenderPlaybookResponse]:
    """Render the prompt block of a playbook: its bullets and the request to cite them."""
    body = {"query_text": query_text, **drop_none(options)}
    return query_request(api_path("playbooks", name, "render"), body)


def apply_deltas(
    name: str,
    deltas: Sequence[Delta | Mapping[str, Any]],
    *,
    dry_run: bool = False,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[ApplyDeltasResponse]:
    """Apply deltas as one version, all or none.

    With `dry_run` nothing is written. `if_match` is the version that the playbook must be at.
    """
    return write_request(
        "POST",
        api_path("playbooks", name, "deltas"),
        {"deltas": list(deltas), **drop_none({"reason": reason, "project_id": project_id})},
        params={"dry_run": dry_run or None},
        headers=if_match_header(if_match),
    )


def list_bullets(
    name: str,
    *,
    section: str | None = None,
    status: MemoryStatus | None = None,
    tag: str | None = None,
    sort: Literal["key", "usefulness", "-usefulness"] | None = None,
    project_id: str | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[StoredBullet]]:
    """List the bullets of a playbook, by key or by usefulness. With `-usefulness`, the most useful
    come first. `limit` is the page size.
    """
    return get_request(
        api_path("playbooks", name, "bullets"),
        section=section,
        status=status,
        tag=tag,
        sort=sort,
        project_id=project_id,
        limit=limit,
    )


def get_bullet(name: str, key: str, *, project_id: str | None = None) -> Request[StoredBullet]:
    """Get a bullet. If it was merged, `NotFound.extra` names the remaining bullet."""
    return get_request(_bullet_path(name, key), project_id=project_id)


def create_bullet(
    name: str, content: str, *, if_match: int | None = None, **options: Unpack[CreateBulletOptions]
) -> Request[BulletReceipt]:
    """Create a bullet. The service generates its key."""
    body = {"content": content, **drop_none(options)}
    path = api_path("playbooks", name, "bullets")
    return write_request("POST", path, body, headers=if_match_header(if_match))


def update_bullet(
    name: str, key: str, *, if_match: int | None = None, **options: Unpack[UpdateBulletOptions]
) -> Request[BulletReceipt]:
    """Change the given fields of a bullet, even if it is pinned."""
    headers = if_match_header(if_match)
    return write_request("PATCH", _bullet_path(name, key), options, headers=headers)


def delete_bullet(
    name: str,
    key: str,
    *,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[None]:
    """Delete a bullet. Its history remains and its key is never used again."""
    params = {"reason": reason, "project_id": project_id}
    headers = if_match_header(if_match)
    return write_request("DELETE", _bullet_path(name, key), params=params, headers=headers)


def record_verdict(
    name: str, key: str, tag: VerdictTag, **options: Unpack[RecordVerdictOptions]
) -> Request[RecordVerdictResponse]:
    """Record a verdict on a bullet, for the trace `trace_id` if it is set.

    The judge is "human" with an admin key, otherwise "llm".
    """
    body = {"tag": tag, **drop_none(options)}
    return write_request("POST", _bullet_path(name, key, "verdicts"), body)


def list_verdicts(
    name: str, key: str, *, project_id: str | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[Verdict]]:
    """List the verdicts on a bullet, newest first. `limit` is the page size."""
    return get_request(_bullet_path(name, key, "verdicts"), project_id=project_id, limit=limit)


def list_bullet_versions(
    name: str, key: str, *, project_id: str | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[BulletVersion]]:
    """List the versions of a bullet, oldest first. Works for deleted and merged bullets. `limit` is
    the page size.
    """
    return get_request(_bullet_path(name, key, "versions"), project_id=project_id, limit=limit)


def get_bullet_provenance(
    name: str, key: str, *, project_id: str | None = None
) -> Request[Provenance]:
    """Trace a bullet to its lessons, their traces and the source events."""
    return get_request(_bullet_path(name, key, "provenance"), project_id=project_id)


def _bullet_path(name: str, key: str, *rest: str) -> str:
    return api_path("playbooks", name, "bullets", key, *rest)
