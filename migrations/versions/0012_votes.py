"""Releases from quarantine that hold, and outcomes beside runs that were served nothing."""

from __future__ import annotations

from alembic import op

from migrations.rls import ROLES
from migrations.statements import statements

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0012_votes"):
        op.execute(statement)
    _grant()


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop view bullet_effects")
    (view,) = (s for s in statements("0006_outcomes") if "create view bullet_effects" in s)
    op.execute(view)
    _grant()
    op.execute("alter table memories drop column forgiven")


def _grant() -> None:
    op.execute(f"grant select on bullet_effects to {', '.join(ROLES)}")
