"""The table `embedding_models`."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Now, OptStr, Str, TenantId


class EmbeddingModelRow(Base):
    """An embedding model of a tenant. `label` identifies its vectors. `provider`, `name`,
    `dimensions` and `base_url` open the model; null means the value in the settings.

    States: `active` embeds the queries; the tenant is moving to `filling`; it has moved away from
    `retiring`, whose vectors are deleted when no process can use them any more.
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
    state_since: Mapped[Now]
