"""The previous secret of a webhook, during a rotation"""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("alter table webhooks add column previous_secret text")
    op.execute("alter table webhooks add column previous_secret_until timestamptz")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute("alter table webhooks drop column previous_secret_until")
    op.execute("alter table webhooks drop column previous_secret")
