"""Collections of documents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("collections"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("collections", "documents", "document_parts", "document_pages")


def downgrade() -> None:
    """The chunks stay as memories that no search of the earlier version finds."""
    op.execute("set local lock_timeout = '5s'")
    for table in ("document_pages", "document_parts", "documents", "collections"):
        op.execute(f"drop table {table}")
