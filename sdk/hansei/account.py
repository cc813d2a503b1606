"""Keys and tenants: requests, and the shapes of what is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from hansei.answers import Page
from hansei.request import API, Id, Request, given, one, read, write

Scope = Literal["read", "write", "admin"]


class Key(TypedDict):
    id: str
    name: str
    scopes: list[str]
    project_id: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str


class NewKey(Key):
    key: str


class Tenant(TypedDict):
    id: str
    slug: str
    status: str
    created_at: str


class NewTenant(Tenant):
    key: str | None


def keys() -> Request[Page[Key]]:
    """The keys of your tenant, without their secrets."""
    return read(f"{API}/keys")


def make_key(
    name: str | None = None,
    *,
    scopes: Sequence[Scope] = ("write",),
    project_id: str | None = None,
    expires_at: str | None = None,
) -> Request[NewKey]:
    """Make a key of your tenant; this answer is the only one that shows it."""
    body = {"name": name, "scopes": list(scopes), "project_id": project_id}
    return write("POST", f"{API}/keys", given(body | {"expires_at": expires_at}))


def revoke_key(key_id: Id) -> Request[None]:
    """Revoke a key at once."""
    return write("DELETE", one("keys", key_id))


def tenants() -> Request[Page[Tenant]]:
    """The tenants this key belongs to: its own."""
    return read(f"{API}/tenants")


def make_tenant(name: str) -> Request[NewTenant]:
    """Create a tenant and its administrator's key; needs an operator key."""
    return write("POST", f"{API}/tenants", {"name": name})
