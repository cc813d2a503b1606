"""Indexing memories again by other terms, batch by batch, while they are searched and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.memory.put import POSTINGS, WITHDRAW
from apps.memory_api.memory.schemas import Status

TOKENIZERS = load(__file__, "tokenizers.sql")
FIND = load(__file__, "find_indexed.sql")
LOCK = load(__file__, "lock_indexed.sql")
SET = load(__file__, "set_terms.sql")


class Indexed(NamedTuple):
    """A memory as one tokeniser left it. `said` is the MD5 of its text."""

    id: UUID
    n: int
    text: str
    said: str


async def find_tokenizers(session: AsyncSession) -> Sequence[str]:
    """What indexed a tenant's memories, served or not."""
    rows = await session.execute(TOKENIZERS, {"tenant": tenant_of(session)})
    return rows.scalars().all()


async def find_indexed(session: AsyncSession, tokenizer: str, many: int) -> Sequence[Indexed]:
    """Some memories that this tokeniser indexed."""
    given = {"tenant": tenant_of(session), "tokenizer": tokenizer, "many": many}
    return [Indexed(*row) for row in await session.execute(FIND, given)]


async def index_again(
    session: AsyncSession,
    before: str,
    now: str,
    rows: Sequence[Indexed],
    weights: Mapping[int, Mapping[int, float]],
) -> int:
    """Give memories new terms, by their numbers, in place of those that `before` gave them. One
    that was changed meanwhile is left out. Answers how many were indexed again.
    """
    tenant = tenant_of(session)
    said = {"ids": [row.id for row in rows], "said": [row.said for row in rows]}
    locked = (await session.execute(LOCK, {"tenant": tenant, "tokenizer": before, **said})).all()
    if not locked:
        return 0
    served = [row for row in locked if row.status == Status.ACTIVE]
    await _withdraw(session, tenant, served)
    await _post(session, tenant, served, weights)
    texts = [f"{{{','.join(map(str, sorted(weights[row.n])))}}}" for row in locked]
    given = {"tenant": tenant, "tokenizer": now, "ns": [row.n for row in locked], "terms": texts}
    await session.execute(SET, given)
    return len(locked)


async def _withdraw(session: AsyncSession, tenant: UUID, served: Sequence[Any]) -> None:
    gone = [(row.scope, term, row.n) for row in served for term in row.terms]
    if gone:
        scopes, terms, ns = map(list, zip(*gone, strict=True))
        given = {"tenant": tenant, "scopes": scopes, "terms": terms, "ns": ns}
        await session.execute(WITHDRAW, given)


async def _post(
    session: AsyncSession,
    tenant: UUID,
    served: Sequence[Any],
    weights: Mapping[int, Mapping[int, float]],
) -> None:
    rows = [(row.scope, t, row.n, w) for row in served for t, w in weights[row.n].items()]
    if rows:
        scopes, terms, ns, numbers = map(list, zip(*rows, strict=True))
        given = {"scopes": scopes, "terms": terms, "ns": ns, "weights": numbers}
        await session.execute(POSTINGS, {"tenant": tenant, "many": len(rows), **given})
