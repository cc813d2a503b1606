"""Search groups the lexical scores only of rows that may be among the best."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.search import definition

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    op.execute(sa.text(definition().replace(":", r"\:")))


def downgrade() -> None:
    """The function also serves the previous release: its parameters and columns are the same."""
    op.execute("set local lock_timeout = '5s'")
