"""Tenants and API keys on the wire."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import AliasChoices, Field, field_validator

from memory_api.auth.identity import KeyScope
from memory_api.core.errors import InvalidRequest
from memory_api.core.ids import to_tenant_id
from memory_api.core.schemas import (
    Metadata,
    Name,
    Page,
    RequestModel,
    ResponseModel,
    TenantRequest,
    UtcDatetime,
    with_examples,
)


class CreateTenantRequest(RequestModel):
    """A tenant to create."""

    name: Name = Field(
        description="A UUID, or a slug (letters, digits, `.`, `_`, `-`) that gives the ID."
    )

    @field_validator("name")
    @classmethod
    def _check_tenant_name(cls, value: str) -> str:
        try:
            to_tenant_id(value)
        except InvalidRequest as error:
            raise ValueError(error.detail) from None
        return value


_TENANT: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa01",
    "slug": "acme",
    "status": "active",
    "created_at": "2026-11-21T09:00:00Z",
}


class Tenant(ResponseModel):
    """The owner of data. Tenants never see each other's data."""

    model_config = with_examples(_TENANT)

    id: UUID
    slug: str
    status: str = Field(description="`active` or `suspended`.")
    created_at: UtcDatetime


class CreateTenantResponse(Tenant):
    """A created tenant with its first admin key."""

    model_config = with_examples(_TENANT | {"key": "hsk_…"})

    key: str | None = Field(default=None, description="Null if the tenant already existed.")


class TenantPage(Page[Tenant]):
    """One page of tenants."""


class CreateApiKeyRequest(TenantRequest):
    """An API key to create."""

    name: Name | None = Field(default=None, description="What the key is for.")
    scopes: list[KeyScope] = Field(
        default_factory=lambda: [KeyScope.WRITE],
        min_length=1,
        max_length=3,
        description="`write` includes `read`; `admin` includes both. Default: `write`.",
    )
    project_id: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("project_id", "project"),
        description="Bind the key to one project. Null: all projects of the tenant.",
    )
    expires_at: UtcDatetime | None = Field(
        default=None, description="Null: the key does not expire."
    )


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


class ApiKey(ResponseModel):
    """An API key without its secret."""

    model_config = with_examples(_KEY)

    id: UUID
    name: str
    scopes: list[str]
    project_id: str | None
    expires_at: UtcDatetime | None
    revoked_at: UtcDatetime | None
    last_used_at: UtcDatetime | None
    created_at: UtcDatetime


class ApiKeyPage(Page[ApiKey]):
    """One page of API keys."""


class CreateApiKeyResponse(ApiKey):
    """A created API key. `key` is shown only here."""

    model_config = with_examples(_KEY | {"key": "hsk_…", "last_used_at": None})

    key: str


_EVENT: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa0b",
    "action": "key.revoked",
    "target": "key:0190d2c4-6f5e-7a31-9c11-3a55d6f0aa02",
    "actor": "key:0190d2c4-6f5e-7a31-9c11-3a55d6f0aa03",
    "details": {"name": "ci"},
    "created_at": "2026-11-21T09:00:00Z",
}


class AuditEvent(ResponseModel):
    """One administrative act."""

    model_config = with_examples(_EVENT)

    id: UUID
    action: str = Field(description="`<noun>.<past participle>`, such as `key.created`.")
    target: str = Field(description="What was changed, such as `key:<ID>`.")
    actor: str = Field(description="`key:<ID>`, `run:<ID>` or `command_line`.")
    details: Metadata
    created_at: UtcDatetime


class AuditEventPage(Page[AuditEvent]):
    """One page of the audit log."""
