"""Statements on `embedding_models`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.embeddings.tables import EmbeddingModelRow


async def list_embedding_models(
    session: AsyncSession, *, lock: bool = False
) -> Sequence[EmbeddingModelRow]:
    """All models of the tenant, ordered by state: active, filling, retiring. `lock` locks the rows
    until the transaction ends.
    """
    query = (
        select(EmbeddingModelRow)
        .where(EmbeddingModelRow.tenant_id == current_tenant_id(session))
        .order_by(EmbeddingModelRow.state, EmbeddingModelRow.label)
        .execution_options(populate_existing=True)
    )
    return (await session.scalars(query.with_for_update() if lock else query)).all()


async def list_models_to_write(
    session: AsyncSession, retiring_grace: timedelta
) -> Sequence[EmbeddingModelRow]:
    """The models for which new memories get vectors, the active one first.

    A retiring model is included for `retiring_grace`, while other processes may still search with
    it.
    """
    rows = await session.scalars(
        select(EmbeddingModelRow)
        .where(
            EmbeddingModelRow.tenant_id == current_tenant_id(session),
            or_(
                EmbeddingModelRow.state != "retiring",
                EmbeddingModelRow.state_since > func.now() - retiring_grace,
            ),
        )
        .order_by(EmbeddingModelRow.state)
    )
    return rows.all()


async def insert_first_model(session: AsyncSession, model: EmbeddingModelRow) -> None:
    """Insert the tenant's first model as active. Does nothing if another process has inserted it
    concurrently.
    """
    await session.execute(
        insert(EmbeddingModelRow)
        .values(
            tenant_id=current_tenant_id(session),
            label=model.label,
            provider=model.provider,
            name=model.name,
            dimensions=model.dimensions,
            base_url=model.base_url,
            state="active",
        )
        .on_conflict_do_nothing()
    )


async def seconds_until(session: AsyncSession, model: EmbeddingModelRow, wait: timedelta) -> float:
    """Seconds until a model has been in its state for `wait`, by the database's clock. 0 if it has
    already.
    """
    seconds = await session.scalar(
        select(func.extract("epoch", EmbeddingModelRow.state_since + wait - func.now())).where(
            EmbeddingModelRow.tenant_id == current_tenant_id(session),
            EmbeddingModelRow.label == model.label,
        )
    )
    return max(0.0, float(seconds or 0))


async def delete_retired_models(
    session: AsyncSession, grace: timedelta, labels_in_use: Sequence[str]
) -> None:
    """Delete the models that have been retiring for `grace`, except those with vectors left
    (`labels_in_use`).
    """
    await session.execute(
        delete(EmbeddingModelRow).where(
            EmbeddingModelRow.tenant_id == current_tenant_id(session),
            EmbeddingModelRow.state == "retiring",
            EmbeddingModelRow.state_since <= func.now() - grace,
            EmbeddingModelRow.label.not_in(labels_in_use),
        )
    )
