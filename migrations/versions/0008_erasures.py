"""Retention per project, tombstones and erasures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

DOWNGRADE = (
    "drop function hansei_erase_rows",
    "drop function hansei_erase_history",
    "drop policy llm_calls_retention on llm_calls",
    "revoke delete on llm_calls from hansei_app, hansei_worker",
    "drop index memories_subject_idx",
    "drop index traces_subject_idx",
    "drop index traces_events_created_at_idx",
    "alter table traces drop column events_deleted_at",
    "drop table erasures",
    "drop table tombstones",
    "drop table retention_policies",
)


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("erasures"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("retention_policies")
    protect("tombstones", privileges="select, insert")
    protect("erasures", privileges="select, insert, update")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in DOWNGRADE:
        op.execute(statement)
