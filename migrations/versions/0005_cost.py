"""Budgets per project and purpose, totals, alerts, and stored replies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

DOWNGRADE = (
    "drop view lesson_costs",
    "drop view playbook_costs",
    "drop view llm_call_details",
    "drop table llm_replies",
    "drop table budget_alerts",
    "drop table budget_totals",
    "drop index budget_reservations_open_idx",
    "alter table budget_reservations drop column project_id, drop column amount_tokens,"
    " drop column is_expired",
    "alter table llm_calls drop column project_id",
    "alter table budgets drop constraint budgets_pkey",
    "alter table budgets drop constraint budgets_limit_check",
)


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("cost"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("budget_totals")
    protect("budget_alerts", "llm_replies", privileges="select, insert, delete")


def downgrade() -> None:
    """Budgets that the earlier version does not know are deleted."""
    op.execute("set local lock_timeout = '5s'")
    for statement in DOWNGRADE:
        op.execute(statement)
    for tenant in op.get_bind().scalars(sa.text("select id from tenants")).all():
        op.execute(f"set local hansei.tenant_id = '{tenant}'")
        op.execute(
            f"delete from budgets where tenant_id = '{tenant}'"
            " and (limit_usd is null or project_id <> '' or purpose <> '')"
        )
    op.execute(
        "alter table budgets drop column project_id, drop column purpose,"
        " drop column limit_tokens, drop column when_spent, alter column limit_usd set not null"
    )
    op.execute("alter table budgets add constraint budgets_pkey primary key (tenant_id, period)")
