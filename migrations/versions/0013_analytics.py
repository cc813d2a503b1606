"""Views and functions for analysts, and what each revision of a memory changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.statements import statements

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

DOWNGRADE = (
    "drop schema analytics cascade",
    "drop index curated_lessons_scope_id_created_at_idx",
    "drop index bullet_verdicts_helpful_idx",
    "drop index bullet_verdicts_created_at_idx",
    "drop trigger memory_revision_type on memory_revisions",
    "drop function memory_revision_type",
    "alter table memory_revisions drop column change_type",
)


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for file in ("analytics", "near_duplicates", "analytics_flow", "analytics_comments"):
        for statement in statements(file):
            op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in DOWNGRADE:
        op.execute(statement)
