"""The schedule of upkeep and of maintenance tasks, and the indexes that find what is due."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INDEXES = (
    "memories_session_id_idx",
    "budget_totals_starts_on_idx",
    "idempotency_keys_created_at_idx",
    "runs_kind_finished_at_idx",
    "runs_unfinished_idx",
    "pgqueuer_payload_idx",
)


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("upkeep"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("maintenance_tasks")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for index in INDEXES:
        op.execute(f"drop index {index}")
    op.execute("drop table maintenance_tasks")
    op.execute("drop table upkeep_schedule")
