"""Scopes and labels: the small numbers under which memories are found."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.tables import Label, Scope

FIND_SCOPES = load(__file__, "find_scopes.sql")
FIND_LABELS = load(__file__, "find_labels.sql")

Address = tuple[str, str, str]
"""(project, area, name): area is `kind`, `playbook` or `collection`."""

Area = tuple[str, str, None]
"""(project, area, None): every scope of an area of a project, for searching."""

Name = tuple[str, str]
"""(space, name) of a label: space is `model`, `tag`, `section` or `error`."""

KIND_NUMBER = {kind: number for number, kind in enumerate(Kind, start=1)}
"""What a kind is called in `memory_vectors`. Append only."""


def kind_scope(project_id: str, kind: Kind) -> Address:
    return (project_id, "kind", kind.value)


def all_playbooks(project_id: str) -> Area:
    return (project_id, "playbook", None)


async def find_scopes(session: AsyncSession, addresses: Iterable[Address]) -> dict[Address, int]:
    """The numbers of the scopes that exist."""
    known: dict[Address, int] = _seen(session, "scopes")
    wanted = set(addresses)
    missing = sorted(wanted - known.keys())
    if missing:
        projects, areas, names = zip(*missing, strict=True)
        given = {"projects": projects, "areas": areas, "names": names}
        rows = await session.execute(FIND_SCOPES, {"tenant": tenant_of(session), **given})
        known |= {(project, area, name): scope for project, area, name, scope in rows}
    return {address: known[address] for address in sorted(wanted & known.keys())}


async def ensure_scopes(session: AsyncSession, addresses: Iterable[Address]) -> dict[Address, int]:
    """The numbers of these scopes, made where they are missing."""
    wanted = sorted(set(addresses))
    found = await find_scopes(session, wanted)
    missing = [address for address in wanted if address not in found]
    if not missing:
        return found
    await one_at_a_time(session, "scopes")
    found = await find_scopes(session, wanted)
    tenant = tenant_of(session)
    last = await session.scalar(select(func.max(Scope.scope)).where(Scope.tenant_id == tenant))
    for number, (project, area, name) in enumerate(
        (address for address in wanted if address not in found), start=(last or 0) + 1
    ):
        await session.execute(
            insert(Scope).values(
                tenant_id=tenant, scope=number, project_id=project, area=area, name=name
            )
        )
        found[(project, area, name)] = number
    return found


async def find_labels(session: AsyncSession, names: Iterable[Name]) -> dict[Name, int]:
    """The numbers of the labels that exist."""
    known: dict[Name, int] = _seen(session, "labels")
    wanted = set(names)
    missing = sorted(wanted - known.keys())
    if missing:
        spaces, named = zip(*missing, strict=True)
        given = {"tenant": tenant_of(session), "spaces": spaces, "names": named}
        rows = await session.execute(FIND_LABELS, given)
        known |= {(space, name): number for space, name, number in rows}
    return {name: known[name] for name in wanted & known.keys()}


async def ensure_labels(session: AsyncSession, names: Iterable[Name]) -> dict[Name, int]:
    """The numbers of these labels, made where they are missing."""
    wanted = set(names)
    found = await find_labels(session, wanted)
    if wanted == found.keys():
        return found
    await one_at_a_time(session, "labels")
    found = await find_labels(session, wanted)
    tenant = tenant_of(session)
    last = await session.scalar(select(func.max(Label.id)).where(Label.tenant_id == tenant))
    new = dict(zip(sorted(wanted - found.keys()), count((last or 0) + 1), strict=False))
    if new:
        await session.execute(
            insert(Label),
            [
                {"tenant_id": tenant, "id": number, "space": space, "name": name}
                for (space, name), number in new.items()
            ],
        )
    return found | new


def _seen(session: AsyncSession, what: str) -> dict[Any, int]:
    """What this transaction has read already: a number, once given, never changes. Inside a
    savepoint nothing is kept, because what is read there may be taken back.
    """
    seen: dict[Any, int] = session.info.setdefault(what, {})
    return dict(seen) if session.in_nested_transaction() else seen


async def one_at_a_time(session: AsyncSession, what: str) -> None:
    """One transaction of a tenant at a time goes past here: it looks, then writes what it did not
    find. Held to its end.
    """
    await session.execute(
        text("select pg_advisory_xact_lock(hashtextextended(:name, 0))"),
        {"name": f"{what}/{tenant_of(session)}"},
    )
