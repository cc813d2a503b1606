"""The audit log, and the shared counters of rate limits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("limits"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    # Rows are added and never changed.
    protect("audit_log", privileges="select, insert")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop table rate_limit_counters")
    op.execute("drop table audit_log")
