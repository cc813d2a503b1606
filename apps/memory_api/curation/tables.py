"""Stored decisions of the curator."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Now, OptStr, Str, TenantId


class CuratedLessonRow(Base):
    """The decision on a lesson in a playbook, by the fingerprint of its text, so the same lesson is
    not decided twice.
    """

    __tablename__ = "curated_lessons"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "scope_id"], ["playbooks.tenant_id", "playbooks.scope_id"]
        ),
        CheckConstraint(
            "decision in ('added', 'updated', 'merged', 'already_known', 'waiting', 'proposed',"
            " 'rejected')",
            name="decision",
        ),
        Index("curated_lessons_scope_id_created_at_idx", "tenant_id", "scope_id", "created_at"),
        Index("curated_lessons_memory_id_idx", "tenant_id", "memory_id"),
    )

    tenant_id: Mapped[TenantId]
    scope_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fingerprint: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    decision: Mapped[Str]
    bullet_id: Mapped[UUID | None]
    """The bullet with this lesson; None if it was proposed or rejected."""
    memory_id: Mapped[UUID | None]
    run_id: Mapped[UUID | None]
    reason: Mapped[OptStr]
    created_at: Mapped[Now]
    updated_at: Mapped[Now]
