"""Advice that quotes outside text waits for a second independent trace or a person."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute(
        "alter table memories add column awaiting_confirmation boolean not null default false"
    )


def downgrade() -> None:
    """Lessons that wait stay quarantined: a person decides."""
    op.execute("set local lock_timeout = '5s'")
    op.execute("alter table memories drop column awaiting_confirmation")
