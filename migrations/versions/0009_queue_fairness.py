"""Turns between tenants."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
