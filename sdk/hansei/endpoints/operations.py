"""Requests about maintenance tasks, retention, erasure, export and suspended tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict

from hansei._request import API, Id, Request, api_path, drop_none, get_request, write_request
from hansei.types import Json, Page, Run

MaintenanceTaskName = Literal[
    "upkeep",
    "indexes",
    "retention",
    "summaries",
    "dreaming",
    "entities",
    "clusters",
    "pruning",
]


class MaintenanceSchedule(TypedDict):
    """A maintenance task of your tenant."""

    task: MaintenanceTaskName
    period: str
    is_scheduled: bool
    started_at: str | None
    next_at: str | None


def list_maintenance_tasks() -> Request[Page[MaintenanceSchedule]]:
    """List the maintenance tasks of your tenant with their latest start."""
    return get_request(f"{API}/maintenance")


def start_maintenance(
    task: MaintenanceTaskName,
    *,
    apply: bool = False,
    trace_ids: Sequence[Id] | None = None,
    session_ids: Sequence[str] | None = None,
) -> Request[Run]:
    """Queue a maintenance task now. `apply` lets `pruning` archive what its report lists;
    `trace_ids` and `session_ids` choose what `dreaming` reads.
    """
    chosen = drop_none({"trace_ids": trace_ids, "session_ids": session_ids})
    return write_request("POST", api_path("maintenance", task), {"apply": apply, **chosen})


ErasureTarget = Literal["memory", "trace", "person", "tenant"]


class RetentionPolicyRequest(TypedDict):
    """Days that the data of a project is stored; without `project_id`, of all other projects."""

    project_id: NotRequired[str | None]
    event_days: NotRequired[int | None]
    trace_days: NotRequired[int | None]
    retrieval_days: NotRequired[int | None]
    llm_call_days: NotRequired[int | None]


class RetentionPolicy(TypedDict):
    """Days that the data of a project is stored; null means without limit."""

    project_id: str | None
    event_days: int | None
    trace_days: int | None
    retrieval_days: int | None
    llm_call_days: int | None


class AffectedBullet(TypedDict):
    """A bullet that was learned from erased and other sources. Check its text."""

    project_id: str
    playbook: str
    key: str


class Erasure(TypedDict):
    """An erasure and its result."""

    id: str
    target_kind: ErasureTarget
    target_id: str
    state: str
    reason: str | None
    actor: str | None
    run_id: str | None
    counts: Json
    affected_bullets: list[AffectedBullet]
    created_at: str
    finished_at: str | None


def list_retention() -> Request[Page[RetentionPolicy]]:
    """List how many days the data of each project is stored."""
    return get_request(f"{API}/retention")


def replace_retention(
    policies: Sequence[RetentionPolicyRequest],
) -> Request[Page[RetentionPolicy]]:
    """Replace all retention policies of your tenant."""
    return write_request("PUT", f"{API}/retention", {"items": list(policies)})


def create_erasure(
    target_kind: ErasureTarget, target_id: Id, *, reason: str | None = None
) -> Request[Erasure]:
    """Erase a memory, a trace, a person (`metadata.subject`) or a tenant for good."""
    body = {"target_kind": target_kind, "target_id": str(target_id), "reason": reason}
    return write_request("POST", f"{API}/erasures", drop_none(body))


def list_erasures() -> Request[Page[Erasure]]:
    """List the erasures of your tenant, newest first."""
    return get_request(f"{API}/erasures")


def get_erasure(erasure_id: Id) -> Request[Erasure]:
    """Get an erasure with what it erased."""
    return get_request(api_path("erasures", erasure_id))


def suspend_tenant(name: str) -> Request[Json]:
    """Stop a tenant. Requires an operator key."""
    return write_request("POST", api_path("tenants", name, "suspend"))


def resume_tenant(name: str) -> Request[Json]:
    """Let a suspended tenant work again. Requires an operator key."""
    return write_request("POST", api_path("tenants", name, "resume"))


def export_tenant() -> Request[str]:
    """Get all rows of your tenant as NDJSON. For a large tenant, use `hansei tenant export`."""
    request: Request[Any] = get_request(f"{API}/export")
    return replace(request, response_format="text")
