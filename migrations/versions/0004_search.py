"""Search as one function: a search is one round trip, the tenant bound inside."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from apps.memory_api.memory.hybrid import definition, dropped
from migrations.rls import ROLES

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute(sa.text(definition().replace(":", r"\:")))
    op.execute("revoke execute on function hansei_search from public")
    op.execute(f"grant execute on function hansei_search to {', '.join(ROLES)}, current_user")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    op.execute(dropped())
