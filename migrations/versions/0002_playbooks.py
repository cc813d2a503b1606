"""Playbooks: versions, verdicts, servings, proposals; a bullet's revisions know their version."""

from __future__ import annotations

from alembic import op

from migrations.rls import protect
from migrations.statements import statements

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = (
    "playbooks",
    "bullet_evaluations",
    "servings",
    "memory_usage",
    "playbook_proposals",
)


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for file in ("0002_playbooks", "0002_history"):
        for statement in statements(file):
            op.execute(statement)
    for table in TABLES:
        protect(table)
    protect("playbook_versions", grant="select, insert")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements("0002_down"):
        op.execute(statement)
    for table in ("playbook_versions", *reversed(TABLES)):
        op.execute(f"drop table {table}")
