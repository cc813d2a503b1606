"""The inbox of lessons of a playbook, and the state of its curation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("inbox"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("inbox_lessons", "playbook_curations")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop table inbox_lessons")
    op.execute("drop table playbook_curations")
