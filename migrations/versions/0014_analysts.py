"""Read-only logins for BI tools, each bound to one tenant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.statements import statements

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

POLICIES = (
    "select tablename from pg_policies where schemaname = 'public' and roles = '{hansei_analyst}'"
)
"""The tables that a login can read."""


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("analysts"):
        op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    """The logins remain, but cannot read anything."""
    op.execute("set local lock_timeout = '5s'")
    for table in op.get_bind().scalars(sa.text(POLICIES)).all():
        op.execute(f"drop policy {table}_analyst on {table}")
    op.execute("revoke all on all tables in schema public, analytics from hansei_analyst")
    op.execute("revoke select (tenant_id, id) on traces from hansei_analyst")
    op.execute("revoke usage on schema public, analytics from hansei_analyst")
    op.execute("drop function analytics.create_login, analytics.drop_login")
    op.execute("drop table analytics.logins")
