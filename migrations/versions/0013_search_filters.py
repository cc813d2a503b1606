"""Search by status and by sections in any spelling; ranks of what a leg found alone; a playbook's
own row.
"""

from __future__ import annotations

from alembic import op

from migrations.search import install

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    install("0013_search")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    install("0004_search")
