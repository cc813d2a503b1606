"""The checks of `hansei doctor` on the runs, API keys and conflicts of all tenants."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from memory_api.auth.queries import list_active_tenant_ids
from memory_api.commands.doctor_checks import MAX_CHECKED_TENANTS, CheckResult
from memory_api.core.db import Sessions
from memory_api.core.statements import fetch_rows, load_statement

STUCK_AFTER = timedelta(minutes=15)
"""Time after the end of its lease, or after it was queued without a ticket, at which maintenance
should have found a run.
"""
EXPIRY_WARNING = timedelta(days=7)

PROBLEM_RUNS = load_statement("maintenance/maintenance.sql", "count_problem_runs")
KEY_STATES = load_statement("maintenance/maintenance.sql", "count_keys")
CONFLICTS = load_statement("maintenance/maintenance.sql", "count_conflicts")


@dataclass
class TenantProblems:
    """Findings of all checked tenants."""

    runs: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    """Number of runs by problem (a column of `count_problem_runs`) and kind."""
    without_key: list[UUID] = field(default_factory=list[UUID])
    expired_key_count: int = 0
    expiring: list[UUID] = field(default_factory=list[UUID])
    """Tenants with keys that expire within `EXPIRY_WARNING`."""
    conflict_count: int = 0
    undeclared_conflict_count: int = 0
    """Conflicts in which the client declared no check."""


async def check_all_tenants(
    sessions: Sessions, tenants: Sequence[UUID] | None = None
) -> Sequence[CheckResult]:
    """Return three results: runs, keys and conflicts. Without `tenants`, checks the first 200
    active tenants; `sessions` must then have the worker role.
    """
    if tenants is None:
        async with sessions.without_tenant() as session:
            tenants = await list_active_tenant_ids(session)
    problems = TenantProblems()
    for tenant_id in tenants[:MAX_CHECKED_TENANTS]:
        await _check_tenant(sessions, tenant_id, problems)
    return [
        _runs_result(problems),
        _keys_result(problems, len(tenants)),
        _conflicts_result(problems),
    ]


async def _check_tenant(sessions: Sessions, tenant_id: UUID, problems: TenantProblems) -> None:
    async with sessions.for_tenant(tenant_id) as session:
        limit = {"tenant": tenant_id, "limit": STUCK_AFTER}
        for problem, kind, count in await fetch_rows(session, PROBLEM_RUNS, limit):
            problems.runs[problem][kind] += count
        warning = {"tenant": tenant_id, "warning": EXPIRY_WARNING}
        keys = (await fetch_rows(session, KEY_STATES, warning))[0]
        conflicts = (await fetch_rows(session, CONFLICTS, {"tenant": tenant_id}))[0]
    problems.conflict_count += conflicts.total
    problems.undeclared_conflict_count += conflicts.undeclared
    problems.expired_key_count += keys.expired
    if not keys.usable:
        problems.without_key.append(tenant_id)
    if keys.expiring:
        problems.expiring.append(tenant_id)


def _runs_result(problems: TenantProblems) -> CheckResult:
    messages_and_fixes = {
        "stuck": (
            f"stuck for {STUCK_AFTER.seconds // 60} minutes",
            "Start a worker with `hansei worker`. Its maintenance queues these runs again.",
        ),
        "unknown_kind": (
            "waiting for a newer worker",
            "Upgrade the workers to the release of the process that queued these runs.",
        ),
        "dead": (
            "dead, out of attempts",
            "Read their errors with `hansei run list --state dead`, remove the cause, then"
            " `hansei run retry ID`.",
        ),
    }
    for problem, (message, fix) in messages_and_fixes.items():
        if counts := problems.runs.get(problem):
            return CheckResult("runs", False, f"{message}: {_list(counts)}", fix)
    return CheckResult("runs", True, "no run is stuck or dead")


def _keys_result(problems: TenantProblems, tenant_count: int) -> CheckResult:
    if not tenant_count:
        fix = (
            "Run `hansei tenant create NAME`, then `hansei key create --tenant NAME`. If there are"
            " tenants, set HANSEI_WORKER_URL: only hansei_worker sees them."
        )
        return CheckResult("keys", True, "no tenant is visible", fix)
    if problems.without_key:
        shown = _list_tenants(problems.without_key)
        fix = "Run `hansei key create --tenant NAME` for each tenant that is in use."
        return CheckResult("keys", True, f"tenants without a usable API key: {shown}", fix)
    if problems.expiring:
        shown = _list_tenants(problems.expiring)
        fix = "Create new keys before the old ones expire: `hansei key create --tenant NAME`."
        message = f"keys expire within {EXPIRY_WARNING.days} days: {shown}"
        return CheckResult("keys", True, message, fix)
    message = "every tenant has a usable API key"
    if problems.expired_key_count:
        message += f"; {problems.expired_key_count} others are expired"
    return CheckResult("keys", True, message)


def _conflicts_result(problems: TenantProblems) -> CheckResult:
    count = problems.undeclared_conflict_count
    message = (
        f"{problems.conflict_count} traces have an outcome that a check contradicts;"
        f" {count} of these checks were not declared by the client"
    )
    fix = (
        "An older rule decided these. They keep their result. To replace it, send the outcome again"
        " with `match`."
    )
    return CheckResult("conflicts", True, message, fix if count else "")


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count} × {kind}" for kind, count in counts.most_common())


def _list_tenants(tenants: Sequence[UUID]) -> str:
    shown = ", ".join(map(str, tenants[:3]))
    return shown if len(tenants) <= 3 else f"{shown} and {len(tenants) - 3} more"
