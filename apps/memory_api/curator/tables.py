"""What the curator remembers."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from apps.memory_api.core.columns import Now, OptStr, Str, TenantId
from apps.memory_api.core.db import Base


class CuratedLesson(Base):
    """What became of a lesson in a playbook, by its words: the same lesson is not thought about
    twice. Only a fingerprint of the words is kept.
    """

    __tablename__ = "curated_lessons"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "scope"], ["playbooks.tenant_id", "playbooks.scope"]),
        CheckConstraint(
            "decision in ('added', 'updated', 'merged', 'kept', 'held', 'left_out')",
            name="decision",
        ),
    )

    tenant_id: Mapped[TenantId]
    scope: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fingerprint: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    decision: Mapped[Str]
    bullet_id: Mapped[UUID | None]
    """The bullet that stands for it; None when it was held for a person or left out."""
    memory_id: Mapped[UUID | None]
    run_id: Mapped[UUID | None]
    reason: Mapped[OptStr]
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
