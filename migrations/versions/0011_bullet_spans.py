"""What a bullet said from one version to another, so that a playbook of the past is one short read.

Whoever changes a memory waits while the spans of the past are written: ten to fifteen seconds for a
million revisions.
"""

from __future__ import annotations

from alembic import op

from migrations.rls import for_each_tenant, protect
from migrations.statements import statements

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0011_spans"):
        op.execute(statement)
    protect("bullet_spans", grant="select")
    for statement in statements("0011_fill"):
        for_each_tenant(statement)
    op.execute("analyze bullet_spans")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0011_down"):
        op.execute(statement)
