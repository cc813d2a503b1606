"""The embedding model of each tenant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    first = True
    for statement in statements("0008_embedding_models"):
        op.execute(sa.text(statement.replace(":", r"\:")))
        if first:
            protect("embedding_models")
            first = False


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop index memories_tokenizer_idx")
    op.execute("drop table embedding_models")
