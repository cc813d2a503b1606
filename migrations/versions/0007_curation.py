"""What the curator keeps."""

from __future__ import annotations

from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0007_curation"):
        op.execute(statement)
    protect("curated_lessons")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("drop index memories_aside_idx")
    op.execute("alter table playbooks drop column tidied_version")
    op.execute("drop table curated_lessons")
