"""Statements on a tenant's embedding models."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.embeddings.tables import EmbeddingModel


async def list_models(session: AsyncSession, *, lock: bool = False) -> Sequence[EmbeddingModel]:
    """All of a tenant's, by state: active, filling, retiring."""
    query = (
        select(EmbeddingModel)
        .where(EmbeddingModel.tenant_id == tenant_of(session))
        .order_by(EmbeddingModel.state, EmbeddingModel.label)
        .execution_options(populate_existing=True)
    )
    return (await session.scalars(query.with_for_update() if lock else query)).all()


async def written_models(
    session: AsyncSession, retiring_for: timedelta
) -> Sequence[EmbeddingModel]:
    """Those that new memories get a vector of, the active one first: a retiring one only for as
    long as somebody may still be searching with it.
    """
    rows = await session.scalars(
        select(EmbeddingModel)
        .where(
            EmbeddingModel.tenant_id == tenant_of(session),
            or_(
                EmbeddingModel.state != "retiring",
                EmbeddingModel.since > func.now() - retiring_for,
            ),
        )
        .order_by(EmbeddingModel.state)
    )
    return rows.all()


async def begin_with(session: AsyncSession, model: EmbeddingModel) -> None:
    """Give a tenant its first model; another process may have done so at the same moment."""
    await session.execute(
        insert(EmbeddingModel)
        .values(
            tenant_id=tenant_of(session),
            label=model.label,
            provider=model.provider,
            name=model.name,
            dimensions=model.dimensions,
            base_url=model.base_url,
            state="active",
        )
        .on_conflict_do_nothing()
    )


async def moment(session: AsyncSession) -> datetime:
    """When the transaction began, by the clock that everybody shares."""
    return (await session.execute(select(func.now()))).scalar_one()


async def seconds_left(session: AsyncSession, model: EmbeddingModel, wait: timedelta) -> float:
    """Until a model has been in its state for `wait`, by the database's clock; 0 when it has."""
    left = await session.scalar(
        select(func.extract("epoch", EmbeddingModel.since + wait - func.now())).where(
            EmbeddingModel.tenant_id == tenant_of(session), EmbeddingModel.label == model.label
        )
    )
    return max(0.0, float(left or 0))


async def forget_retired(session: AsyncSession, grace: timedelta, but: Sequence[str]) -> None:
    """Delete the rows of models that were retired longer ago than `grace`, except for those whose
    vectors are still there.
    """
    await session.execute(
        delete(EmbeddingModel).where(
            EmbeddingModel.tenant_id == tenant_of(session),
            EmbeddingModel.state == "retiring",
            EmbeddingModel.since <= func.now() - grace,
            EmbeddingModel.label.not_in(but),
        )
    )
