"""Which embedding models a tenant's memories have vectors of."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from apps.memory_api.core.columns import Now, OptStr, Str, TenantId
from apps.memory_api.core.db import Base


class EmbeddingModel(Base):
    """One model of one tenant. `label` is the key under which its vectors are stored; provider,
    name, dimensions and base_url are what opens it (null: what the settings say).

    Of the states, `active` embeds the queries, `filling` is being moved to, and `retiring` was
    moved from: its vectors go when no process can be asking for them any more.
    """

    __tablename__ = "embedding_models"
    __table_args__ = (
        CheckConstraint("state in ('active', 'filling', 'retiring')", name="state"),
        Index(
            "embedding_models_active_idx",
            "tenant_id",
            unique=True,
            postgresql_where=text("state = 'active'"),
        ),
        Index(
            "embedding_models_filling_idx",
            "tenant_id",
            unique=True,
            postgresql_where=text("state = 'filling'"),
        ),
    )

    tenant_id: Mapped[TenantId]
    label: Mapped[Str] = mapped_column(primary_key=True)
    provider: Mapped[Str]
    name: Mapped[OptStr]
    dimensions: Mapped[int | None]
    base_url: Mapped[OptStr]
    state: Mapped[Str]
    since: Mapped[Now]
