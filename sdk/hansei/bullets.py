"""Bullets of a playbook: found, put in a prompt, edited and judged. Requests, and the shapes of
what is sent and answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from hansei.answers import Json, Page
from hansei.finding import SearchFields
from hansei.reflector import Tag
from hansei.request import Id, Request, ask, at_version, given, one, read, write
from hansei.routes import PAGE

BulletStatus = Literal["active", "quarantined", "archived"]
DeltaType = Literal["ADD", "UPDATE", "DELETE", "MERGE", "KEEP"]


class Bullet(TypedDict):
    """One piece of advice. `id` is its key, as `mis-00001`; what says nothing may be left out."""

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
    confidence_score: NotRequired[float]


class BulletView(Bullet):
    """`version` is the playbook's that last changed it."""

    memory_id: str
    usefulness: float
    version: int | None
    created_at: str
    updated_at: str


class BulletStored(TypedDict):
    """`version` is the playbook's after this."""

    version: int
    bullet: Bullet
    cleaned: bool


class BulletHit(TypedDict):
    """The scores are those used in the sum."""

    bullet: Bullet
    vector_score: float
    bm25_score: float
    combined_score: float
    explain: dict[str, float | int | str | None] | None


class BulletsFound(TypedDict):
    """`render_id` names this serving: send it with the trace of the run that used it."""

    results: list[BulletHit]
    version: int
    render_id: str


class Rendered(TypedDict):
    """`text` goes into a prompt. `render_id` and what was cited of `keys` go into the trace."""

    text: str
    keys: list[str]
    tokens: int
    version: int
    render_id: str
    left_out: int
    held_out: str | None


class Delta(TypedDict):
    """One edit. ADD makes a key of its own; MERGE folds `source_ids` into `bullet_id`."""

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
    """What became of one delta."""

    index: int
    type: DeltaType
    action: Literal["added", "updated", "merged", "deleted", "kept", "rejected"]
    key: str | None
    reason: str
    before: Bullet | None
    after: Bullet | None
    absorbed: list[Bullet]


class Edited(TypedDict):
    """`held`: the deltas wait for a person, as `proposal_id`."""

    version: int
    applied: bool
    held: bool
    proposal_id: str | None
    results: list[DeltaResult]
    cleaned: bool


class BulletVerdict(TypedDict):
    """What one judge says of a bullet, of one run where `trace_id` names it."""

    id: str
    judge: Literal["human", "test", "llm", "rules", "outcome"]
    tag: Tag
    reason: str | None
    evidence: Json
    confirmed: bool
    trace_id: str | None
    render_id: str | None
    actor: str | None
    created_at: str
    updated_at: str


class JudgedBullet(TypedDict):
    """`key` is the bullet the verdict went to; `counts` says whether its counters hold it."""

    evaluation: BulletVerdict
    key: str
    counts: bool
    quarantined: bool
    bullet: Bullet
    cleaned: bool


class Origin(TypedDict):
    """One link on the way from a bullet to the events it was learnt from."""

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
    links: list[Origin]


class BulletSearch(SearchFields, total=False):
    """Its `min_confidence` is .3 unless told."""


class RenderOptions(TypedDict, total=False):
    project_id: str | None
    token_budget: int | None
    top_k: int | None
    section_filter: Sequence[str] | None
    format: Literal["prompt", "ace"] | None
    holdout: float | None


class BulletFields(TypedDict, total=False):
    project_id: str | None
    section: str | None
    when_to_use: str | None
    title: str | None
    keywords: Sequence[str] | None
    tags: Sequence[str] | None
    pinned: bool | None
    reason: str | None


class BulletChanges(TypedDict, total=False):
    project_id: str | None
    content: str
    section: str
    when_to_use: str
    title: str
    keywords: Sequence[str]
    tags: Sequence[str]
    status: BulletStatus
    pinned: bool
    reason: str | None


class VerdictOptions(TypedDict, total=False):
    judge: Literal["human", "llm"] | None
    project_id: str | None
    reason: str | None
    trace_id: Id | None
    render_id: Id | None


def search_playbook(
    name: str, query_text: str = "", **options: Unpack[BulletSearch]
) -> Request[BulletsFound]:
    """The bullets that matter for a query, best first; without one, the most useful."""
    return ask(one("playbooks", name, "search"), {"query_text": query_text, **given(options)})


def render_playbook(
    name: str, query_text: str = "", **options: Unpack[RenderOptions]
) -> Request[Rendered]:
    """The block to put in a prompt, with the request to cite."""
    return ask(one("playbooks", name, "render"), {"query_text": query_text, **given(options)})


def edit_playbook(
    name: str,
    deltas: Sequence[Delta | Mapping[str, Any]],
    *,
    dry_run: bool = False,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[Edited]:
    """ADD, UPDATE, MERGE, DELETE, KEEP: all or none, one version. With `dry_run` nothing is
    written; `if_match` is the version the playbook must be at.
    """
    body = {"deltas": list(deltas), "apply": not dry_run}
    more = given({"reason": reason, "project_id": project_id})
    return write(
        "POST", one("playbooks", name, "deltas"), body | more, headers=at_version(if_match)
    )


def bullets(
    name: str,
    *,
    section: str | None = None,
    status: BulletStatus | None = None,
    tag: str | None = None,
    project_id: str | None = None,
    limit: int = PAGE,
) -> Request[Page[BulletView]]:
    """The bullets of a playbook by key, of every status unless one is named."""
    path = one("playbooks", name, "bullets")
    return read(path, section=section, status=status, tag=tag, project_id=project_id, limit=limit)


def bullet(name: str, key: str, *, project_id: str | None = None) -> Request[BulletView]:
    """One bullet. For a key that was merged `NotFound` names the survivor in `extra`."""
    return read(_bullet(name, key), project_id=project_id)


def add_bullet(
    name: str, content: str, *, if_match: int | None = None, **fields: Unpack[BulletFields]
) -> Request[BulletStored]:
    """A bullet of your own; its key is made."""
    body = {"content": content, **given(fields)}
    path = one("playbooks", name, "bullets")
    return write("POST", path, body, headers=at_version(if_match))


def update_bullet(
    name: str, key: str, *, if_match: int | None = None, **changes: Unpack[BulletChanges]
) -> Request[BulletStored]:
    """Change the fields that are given, of a pinned bullet too."""
    return write("PATCH", _bullet(name, key), changes, headers=at_version(if_match))


def delete_bullet(
    name: str,
    key: str,
    *,
    if_match: int | None = None,
    reason: str | None = None,
    project_id: str | None = None,
) -> Request[None]:
    """Take a bullet out. Its history stays, and its key is never given again."""
    params = {"reason": reason, "project_id": project_id}
    return write("DELETE", _bullet(name, key), params=params, headers=at_version(if_match))


def judge_bullet(
    name: str, key: str, tag: Tag, **options: Unpack[VerdictOptions]
) -> Request[JudgedBullet]:
    """A verdict on a bullet, of one run if `trace_id` says which. It is a person's with an admin
    key, else an agent's.
    """
    return write("POST", _bullet(name, key, "evaluations"), {"tag": tag, **given(options)})


def verdicts(
    name: str, key: str, *, project_id: str | None = None, limit: int = PAGE
) -> Request[Page[BulletVerdict]]:
    """The verdicts on a bullet, newest first."""
    return read(_bullet(name, key, "evaluations"), project_id=project_id, limit=limit)


def provenance(name: str, key: str, *, project_id: str | None = None) -> Request[Provenance]:
    """From a bullet back to its lessons, their traces and the events that told."""
    return read(_bullet(name, key, "provenance"), project_id=project_id)


def _bullet(name: str, key: str, *rest: str) -> str:
    return one("playbooks", name, "bullets", key, *rest)
