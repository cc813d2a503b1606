"""What the curator keeps."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
