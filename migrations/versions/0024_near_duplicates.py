"""The view of near-duplicates reads one playbook at a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.statements import statements

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("near_duplicates"):
        op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    """The view also serves the previous release: its columns are the same."""
    op.execute("set local lock_timeout = '5s'")
