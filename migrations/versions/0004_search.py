"""Search as one function: a search is one round trip, the tenant bound inside."""

from __future__ import annotations

from alembic import op

from migrations.search import drop, install

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    install("0004_search")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    drop()
