"""Scopes and labels: small integers for the names that search uses."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.tables import LabelRow, ScopeRow

FIND_SCOPES = load_statement("memories/index/index.sql", "find_scopes")
FIND_LABELS = load_statement("memories/index/index.sql", "find_labels")

ScopeAddress = tuple[str, str, str]
"""(project, type, name). The type is `kind`, `playbook` or `collection`."""

ScopeArea = tuple[str, str, None]
"""(project, type, None): all scopes of a type in a project. For search only."""

LabelName = tuple[str, str]
"""(type, name) of a label. The type is `model`, `tag`, `section` or `error`."""

KIND_IDS = {kind: number for number, kind in enumerate(MemoryKind, start=1)}
"""`kind_id` of `memory_vectors`. Append only."""


def kind_scope(project_id: str, kind: MemoryKind) -> ScopeAddress:
    return (project_id, "kind", kind.value)


def all_playbook_scopes(project_id: str) -> ScopeArea:
    return (project_id, "playbook", None)


def all_collection_scopes(project_id: str) -> ScopeArea:
    return (project_id, "collection", None)


async def find_scopes(
    session: AsyncSession, addresses: Iterable[ScopeAddress]
) -> dict[ScopeAddress, int]:
    """The IDs of the scopes that exist."""
    known: dict[ScopeAddress, int] = _cached_ids(session, "scopes")
    wanted = set(addresses)
    missing = sorted(wanted - known.keys())
    if missing:
        projects, types, names = zip(*missing, strict=True)
        parameters = {"projects": projects, "types": types, "names": names}
        rows = await fetch_rows(session, FIND_SCOPES, parameters)
        known |= {(project, type_, name): scope for project, type_, name, scope in rows}
    return {address: known[address] for address in sorted(wanted & known.keys())}


async def ensure_scopes(
    session: AsyncSession, addresses: Iterable[ScopeAddress]
) -> dict[ScopeAddress, int]:
    """The IDs of these scopes. Creates the missing ones."""
    wanted = sorted(set(addresses))
    ids = await find_scopes(session, wanted)
    missing = [address for address in wanted if address not in ids]
    if not missing:
        return ids
    await acquire_tenant_lock(session, "scopes")
    ids = await find_scopes(session, wanted)
    tenant = current_tenant_id(session)
    last = await session.scalar(select(func.max(ScopeRow.id)).where(ScopeRow.tenant_id == tenant))
    for number, (project, type_, name) in enumerate(
        (address for address in wanted if address not in ids), start=(last or 0) + 1
    ):
        await session.execute(
            insert(ScopeRow).values(
                tenant_id=tenant, id=number, project_id=project, type=type_, name=name
            )
        )
        ids[(project, type_, name)] = number
    return ids


async def find_labels(session: AsyncSession, names: Iterable[LabelName]) -> dict[LabelName, int]:
    """The IDs of the labels that exist."""
    known: dict[LabelName, int] = _cached_ids(session, "labels")
    wanted = set(names)
    missing = sorted(wanted - known.keys())
    if missing:
        types, label_names = zip(*missing, strict=True)
        rows = await fetch_rows(session, FIND_LABELS, {"types": types, "names": label_names})
        known |= {(type_, name): number for type_, name, number in rows}
    return {name: known[name] for name in wanted & known.keys()}


async def ensure_labels(session: AsyncSession, names: Iterable[LabelName]) -> dict[LabelName, int]:
    """The IDs of these labels. Creates the missing ones."""
    wanted = set(names)
    ids = await find_labels(session, wanted)
    if wanted == ids.keys():
        return ids
    await acquire_tenant_lock(session, "labels")
    ids = await find_labels(session, wanted)
    tenant = current_tenant_id(session)
    last = await session.scalar(select(func.max(LabelRow.id)).where(LabelRow.tenant_id == tenant))
    new = dict(zip(sorted(wanted - ids.keys()), count((last or 0) + 1), strict=False))
    if new:
        await session.execute(
            insert(LabelRow),
            [
                {"tenant_id": tenant, "id": number, "type": type_, "name": name}
                for (type_, name), number in new.items()
            ],
        )
    return ids | new


def _cached_ids(session: AsyncSession, table: str) -> dict[Any, int]:
    """The IDs that this transaction has read. They never change. A savepoint gets a copy, because
    IDs that it creates may be rolled back.
    """
    cache: dict[Any, int] = session.info.setdefault(table, {})
    return dict(cache) if session.in_nested_transaction() else cache
