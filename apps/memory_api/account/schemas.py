"""Tenants, keys and runs on the wire."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import AliasChoices, Field, field_validator

from apps.memory_api.core.errors import Invalid
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


class TenantView(Model):
    id: UUID
    slug: str
    status: str
    created_at: Time


class TenantMade(TenantView):
    """A tenant and the first key of its administrator; `key` is null when the tenant was there
    already.
    """

    key: str | None


class NewApiKey(TenantBody):
    name: Name | None = None
    scopes: list[Access] = Field(default_factory=lambda: [Access.WRITE], min_length=1, max_length=3)
    project_id: Name | None = Field(None, validation_alias=AliasChoices("project_id", "project"))
    expires_at: Time | None = None


class KeyView(Model):
    """A key without its secret."""

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

    key: str


class RunView(Model):
    """One piece of work. A dead one says in `error` why, and is retried with POST …/retry."""

    id: UUID
    kind: str
    state: str
    project_id: str
    parent_id: UUID | None
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
