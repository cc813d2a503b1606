"""What was served and what came of it: held-out renders, the outcome view."""

from __future__ import annotations

from alembic import op

from migrations.rls import ROLES
from migrations.statements import statements

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0006_outcomes"):
        op.execute(statement)
    op.execute(f"grant select on bullet_effects to {', '.join(ROLES)}")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop view bullet_effects")
    op.execute("drop function wilson")
    op.execute("drop index traces_render_idx")
    op.execute("alter table bullet_evaluations drop column confirmed")
    op.execute("alter table servings drop column candidate, drop column held_out")
    op.execute("alter table playbooks drop column holdout")
