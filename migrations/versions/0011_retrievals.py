"""A function that records a retrieval."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.statements import statements

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("retrievals"):
        op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop function hansei_insert_retrieval")
