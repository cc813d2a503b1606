"""The ledger of model calls."""

from __future__ import annotations

from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0003_model_calls"):
        op.execute(statement)
    protect("llm_calls", grant="select, insert")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop table llm_calls")
