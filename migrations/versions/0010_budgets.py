"""Budgets of model calls."""

from __future__ import annotations

from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0010_budgets"):
        op.execute(statement)
    protect("budgets")
    protect("budget_reservations")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop table budget_reservations")
    op.execute("drop table budgets")
