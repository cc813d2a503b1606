"""Sessions of the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("console"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("console_sessions")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop table console_sessions")
