"""Installing a text of `hansei_search`. Each migration has its own, frozen under sql/."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.rls import ROLES
from migrations.statements import statements


def install(name: str) -> None:
    """The function as `sql/<name>.sql` has it, in place of the one that is there."""
    drop()
    for statement in statements(name):
        op.execute(sa.text(statement.replace(":", r"\:")))
    op.execute("revoke execute on function hansei_search from public")
    op.execute(f"grant execute on function hansei_search to {', '.join(ROLES)}, current_user")


def drop() -> None:
    """Take it away, whatever its arguments."""
    op.execute("drop function if exists hansei_search")
