"""The login of the console's SQL page, and saved statements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("sql_console"):
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect("sql_credentials", privileges="select")
    protect("saved_statements")


def downgrade() -> None:
    """The logins remain; `hansei tenant sql-role NAME --drop ROLE` deletes them."""
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop table saved_statements")
    op.execute("drop table sql_credentials")
