"""Evaluations of traces."""

from __future__ import annotations

from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0005_evaluations"):
        op.execute(statement)
    protect("trace_evaluations")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop table trace_evaluations")
