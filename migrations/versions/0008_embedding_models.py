"""The embedding model of each tenant."""

from __future__ import annotations

from alembic import op

from migrations.rls import for_each_tenant, protect
from migrations.statements import statements

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0008_embedding_models"):
        op.execute(statement)
    protect("embedding_models")
    for statement in statements("0008_adopt"):
        for_each_tenant(statement)


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop index memories_tokenizer_idx")
    op.execute("drop table embedding_models")
