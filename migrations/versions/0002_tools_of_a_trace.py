"""The tools that the agent of a trace could call."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    op.add_column("traces", sa.Column("tools", JSONB))


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.drop_column("traces", "tools")
