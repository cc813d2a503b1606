"""Requests about API keys, tenants, budgets and usage. Money is in US dollars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from hansei._request import (
    API,
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    drop_none,
    get_request,
    write_request,
)
from hansei.types import Page

KeyScope = Literal["read", "write", "admin"]
Period = Literal["day", "month"]
WhenSpent = Literal["refuse", "rules"]


class ApiKey(TypedDict):
    id: str
    name: str
    scopes: list[str]
    project_id: str | None
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    created_at: str


class CreateApiKeyResponse(ApiKey):
    key: str


class Tenant(TypedDict):
    id: str
    slug: str
    status: str
    created_at: str


class CreateTenantResponse(Tenant):
    key: str | None


class AuditEvent(TypedDict):
    """One administrative act. `actor` is `key:<ID>`, `run:<ID>` or `command_line`."""

    id: str
    action: str
    target: str
    actor: str
    details: dict[str, Any]
    created_at: str


class BudgetLimit(TypedDict):
    """The limit of one period in US dollars, tokens, or both.

    Without `project_id` and `purpose`, it limits your whole tenant. `allow_unknown_price` permits
    models without a known price. `when_spent` is "refuse", or "rules" to use the rules engine.
    """

    period: Period
    project_id: NotRequired[str | None]
    purpose: NotRequired[str | None]
    usd: NotRequired[float | None]
    tokens: NotRequired[int | None]
    allow_unknown_price: NotRequired[bool]
    when_spent: NotRequired[WhenSpent]


class BudgetAlert(TypedDict):
    """A threshold that a budget reached in the current period, in percent of its limit."""

    percent: int
    unit: Literal["usd", "tokens"]
    created_at: str


class Budget(TypedDict):
    """A limit with what is spent, reserved and left of it in the current period."""

    period: Period
    project_id: str | None
    purpose: str | None
    usd: float | None
    tokens: int | None
    allow_unknown_price: bool
    when_spent: WhenSpent
    spent_usd: float
    reserved_usd: float
    left_usd: float | None
    spent_tokens: int
    reserved_tokens: int
    left_tokens: int | None
    resets_at: str
    alerts: list[BudgetAlert]


class Usage(TypedDict):
    """Totals of model calls. A field that the request does not group by is null."""

    day: str | None
    model: str | None
    provider: str | None
    purpose: str | None
    project: str | None
    playbook: str | None
    lesson: str | None
    calls: int
    failed: int
    unpriced: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    usd: float


def list_api_keys(*, limit: int = MAX_PAGE_SIZE) -> Request[Page[ApiKey]]:
    """List the API keys of your tenant, without their secrets, the oldest first."""
    return get_request(f"{API}/keys", limit=limit)


def create_api_key(
    name: str | None = None,
    *,
    scopes: Sequence[KeyScope] = ("write",),
    project_id: str | None = None,
    expires_at: str | None = None,
) -> Request[CreateApiKeyResponse]:
    """Create an API key. Only this response contains its secret."""
    body = {"name": name, "scopes": list(scopes), "project_id": project_id}
    return write_request("POST", f"{API}/keys", drop_none(body | {"expires_at": expires_at}))


def revoke_api_key(key_id: Id) -> Request[None]:
    """Revoke an API key immediately."""
    return write_request("DELETE", api_path("keys", key_id))


def list_tenants() -> Request[Page[Tenant]]:
    """List the tenants that this key belongs to: its own tenant only."""
    return get_request(f"{API}/tenants")


def create_tenant(name: str) -> Request[CreateTenantResponse]:
    """Create a tenant and an admin key for it. Requires an operator key."""
    return write_request("POST", f"{API}/tenants", {"name": name})


def list_audit_log(
    *, action: str | None = None, limit: int = MAX_PAGE_SIZE
) -> Request[Page[AuditEvent]]:
    """List the administrative acts in your tenant, newest first. Requires an admin key."""
    return get_request(f"{API}/audit-log", action=action, limit=limit)


def list_budgets() -> Request[Page[Budget]]:
    """List the budgets of your tenant, with what is left of them."""
    return get_request(f"{API}/budgets")


def replace_budgets(limits: Sequence[BudgetLimit]) -> Request[Page[Budget]]:
    """Replace all budgets of your tenant. A budget that is not in the list is removed."""
    return write_request("PUT", f"{API}/budgets", {"items": list(limits)})


def list_usage(
    group_by: Sequence[str] = ("day",),
    *,
    since: str | None = None,
    until: str | None = None,
    project_id: str | None = None,
) -> Request[Page[Usage]]:
    """List model calls, tokens and cost, grouped by day, model, provider, purpose, project or
    playbook, or the cost of each lesson with `["lesson"]`.

    Covers the last 30 days unless `since` is set.
    """
    params = {"since": since, "until": until, "project_id": project_id}
    return get_request(f"{API}/usage", group_by=",".join(group_by), **params)
