"""Runs of GRACE, the agent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("agent_runs"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("agent_runs", "agent_steps", "agent_events", "interventions", "agent_calibrations")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for table in (
        "agent_calibrations",
        "interventions",
        "agent_events",
        "agent_steps",
        "agent_runs",
    ):
        op.execute(f"drop table {table}")
