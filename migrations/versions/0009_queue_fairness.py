"""Turns between tenants."""

from __future__ import annotations

from alembic import op

from migrations.statements import statements

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0009_queue"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0009_down"):
        op.execute(statement)
