"""Search reads the vectors of a large scope with a lower bound, also with filters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.search import definition

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    op.execute(sa.text(definition().replace(":", r"\:")))


def downgrade() -> None:
    """The function also serves the previous release: its parameters and columns are the same."""
    op.execute("set local lock_timeout = '5s'")
