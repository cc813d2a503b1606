"""${message}."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.statements import read_statements

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def statements() -> Iterator[str]:
    """Each file of `sql/` belongs to one migration."""
    yield from read_statements("${up_revision}")
    yield from protect("the_new_table")


def upgrade() -> None:
    # If a lock is not free in time, the migration fails and the service keeps running.
    op.execute("set local lock_timeout = '5s'")
    for statement in statements():
        op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
