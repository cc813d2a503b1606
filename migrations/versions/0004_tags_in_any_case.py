"""Search finds tags in any case, also those that were stored before tags were folded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.search import definition

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    op.execute(sa.text(definition().replace(":", r"\:")))


def downgrade() -> None:
    """The function also serves the previous release, which sends the tags as they are stored."""
    op.execute("set local lock_timeout = '5s'")
