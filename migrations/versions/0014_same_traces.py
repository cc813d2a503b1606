"""A trace that is another one sent again says so."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("alter table traces add column same_as uuid")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("alter table traces drop column same_as")
