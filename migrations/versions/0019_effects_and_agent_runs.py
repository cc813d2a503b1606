"""The effect of bullets as one function with a period, and agent runs for analysts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.statements import statements

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

DOWNGRADE = (
    "drop view analytics.agent_runs",
    "drop view analytics.effects",
    "drop function analytics.effects",
    "drop policy agent_runs_analyst on agent_runs",
    "revoke select (tenant_id, id, project_id, playbook, state, confidence, feedback, feedback_at,"
    " round_count, replan_count, token_count, cost_usd, trace_id, created_at, started_at,"
    " finished_at) on agent_runs from hansei_analyst",
    "alter table agent_runs drop column confidence",
)


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for file in ("effects", "agent_analytics"):
        for statement in statements(file):
            op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in DOWNGRADE:
        op.execute(statement)
