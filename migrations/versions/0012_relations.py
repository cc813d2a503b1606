"""Entities that memories mention, and clusters of memories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("relations"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("entities", "memory_entities", "memory_clusters")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for table in ("memory_clusters", "memory_entities", "entities"):
        op.execute(f"drop table {table}")
