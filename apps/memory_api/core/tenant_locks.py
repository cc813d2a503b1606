"""Advisory locks of a tenant, for rows that do not exist yet and lists that are replaced."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_rows, parse_statement

_LOCK = parse_statement(
    "select pg_advisory_xact_lock(hashtextextended(n, (select lock_seed from installation)))"
    " from unnest(cast(:names as text[])) n"
)


async def acquire_tenant_lock(session: AsyncSession, name: str) -> None:
    """Takes an advisory lock of this name and tenant, so that transactions that insert missing rows
    or replace a list run one after the other. Released at the end of the transaction. The key of
    the lock depends on a secret of the installation, so that no other login can compute it.
    """
    await acquire_tenant_locks(session, [name])


async def acquire_tenant_locks(session: AsyncSession, names: Iterable[str]) -> None:
    """`acquire_tenant_lock` for several names, in their order by name."""
    tenant_id = current_tenant_id(session)
    sorted_names = [f"{name}/{tenant_id}" for name in sorted(names)]
    await fetch_rows(session, _LOCK, {"names": sorted_names})
