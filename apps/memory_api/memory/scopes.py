"""Scopes and labels: the small numbers under which memories are found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import func, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.tables import Label, Scope

Address = tuple[str, str, str]
"""(project, area, name): area is `kind`, `playbook` or `collection`."""

KIND_NUMBER = {kind: number for number, kind in enumerate(Kind, start=1)}
"""What a kind is called in `memory_vectors`. Append only."""


def kind_scope(project_id: str, kind: Kind) -> Address:
    return (project_id, "kind", kind.value)


async def find_scopes(session: AsyncSession, addresses: Iterable[Address]) -> dict[Address, int]:
    """The numbers of the scopes that exist."""
    wanted = sorted(set(addresses))
    if not wanted:
        return {}
    rows = await session.execute(
        select(Scope.project_id, Scope.area, Scope.name, Scope.scope).where(
            Scope.tenant_id == tenant_of(session),
            tuple_(Scope.project_id, Scope.area, Scope.name).in_(wanted),
        )
    )
    return {(project, area, name): scope for project, area, name, scope in rows}


async def ensure_scopes(session: AsyncSession, addresses: Iterable[Address]) -> dict[Address, int]:
    """The numbers of these scopes, made where they are missing."""
    wanted = sorted(set(addresses))
    found = await find_scopes(session, wanted)
    missing = [address for address in wanted if address not in found]
    if not missing:
        return found
    await _lock(session, "scopes")
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


async def find_labels(session: AsyncSession, space: str, names: Sequence[str]) -> dict[str, int]:
    """The numbers of the labels that exist."""
    if not names:
        return {}
    rows = await session.execute(
        select(Label.name, Label.id).where(
            Label.tenant_id == tenant_of(session), Label.space == space, Label.name.in_(set(names))
        )
    )
    return {name: number for name, number in rows}  # noqa: C416


async def ensure_labels(
    session: AsyncSession, wanted: dict[str, set[str]]
) -> dict[str, dict[str, int]]:
    """Per space, the numbers of these names, made where they are missing."""
    found = {
        space: await find_labels(session, space, sorted(names)) for space, names in wanted.items()
    }
    if all(names <= found[space].keys() for space, names in wanted.items()):
        return found
    await _lock(session, "labels")
    tenant = tenant_of(session)
    last = await session.scalar(select(func.max(Label.id)).where(Label.tenant_id == tenant)) or 0
    for space, names in wanted.items():
        found[space] = await find_labels(session, space, sorted(names))
        for name in sorted(names - found[space].keys()):
            last += 1
            await session.execute(
                insert(Label).values(tenant_id=tenant, id=last, space=space, name=name)
            )
            found[space][name] = last
    return found


async def _lock(session: AsyncSession, what: str) -> None:
    """One writer at a time hands out numbers of a tenant; held to the end of the transaction."""
    await session.execute(
        text("select pg_advisory_xact_lock(hashtextextended(:name, 0))"),
        {"name": f"{what}/{tenant_of(session)}"},
    )
