"""Tenants, keys and runs on the wire."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import AliasChoices, Field, field_validator

from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Body, Metadata, Model, Name, TenantBody, Time
from apps.memory_api.tenants.identity import Access, tenant_id_of


class NewTenant(Body):
    """A tenant by name: a UUID, or a slug its id is made from."""

    name: Name

    @field_validator("name")
    @classmethod
    def _names_a_tenant(cls, value: str) -> str:
        try:
            tenant_id_of(value)
        except Invalid as error:
            raise ValueError(error.detail) from None
        return value


_TENANT: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa01",
    "slug": "acme",
    "status": "active",
    "created_at": "2026-11-21T09:00:00Z",
}


class TenantView(Model):
    model_config = shown(_TENANT)

    id: UUID
    slug: str
    status: str
    created_at: Time


class TenantMade(TenantView):
    """A tenant and the first key of its administrator; `key` is null when the tenant was there
    already.
    """

    model_config = shown(_TENANT | {"key": "hsk_…"})

    key: str | None


class NewApiKey(TenantBody):
    name: Name | None = None
    scopes: list[Access] = Field(default_factory=lambda: [Access.WRITE], min_length=1, max_length=3)
    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    expires_at: Time | None = None


_KEY: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa02",
    "name": "ci",
    "scopes": ["write"],
    "project_id": None,
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": "2026-11-21T09:05:00Z",
    "created_at": "2026-11-21T09:00:00Z",
}


class KeyView(Model):
    """A key without its secret."""

    model_config = shown(_KEY)

    id: UUID
    name: str
    scopes: list[str]
    project_id: str | None
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None
    created_at: Time


class KeyMade(KeyView):
    """The only time that `key` is shown."""

    model_config = shown(_KEY | {"key": "hsk_…", "last_used_at": None})

    key: str


class RunView(Model):
    """One piece of work. A dead one says in `error` why, and is retried with POST …/retry.

    Learning goes in steps, each a run: `parent_id` is the first of them, `next_run_id` the one that
    follows.
    """

    model_config = shown(
        {
            "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa03",
            "kind": "reflect",
            "state": "dead",
            "project_id": "default",
            "parent_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa02",
            "next_run_id": None,
            "trace_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
            "input": {},
            "attempts": 5,
            "max_attempts": 5,
            "error": {"type": "Lost", "message": "Its worker died 5 times."},
            "result": None,
            "engine": None,
            "degraded": False,
            "usage": None,
            "created_at": "2026-11-21T09:00:00Z",
            "started_at": "2026-11-21T09:01:00Z",
            "finished_at": "2026-11-21T09:03:00Z",
        }
    )

    id: UUID
    kind: str
    state: str
    project_id: str
    parent_id: UUID | None
    next_run_id: UUID | None
    trace_id: UUID | None
    input: Metadata
    attempts: int
    max_attempts: int
    error: Any
    result: Any
    engine: str | None
    degraded: bool
    usage: Any
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
