"""The one place where a row-level security policy is written (DESIGN section 3, DISTRIBUTED section
2).

`protect()` turns row-level security on and forces it, also on the owner; writes the tenant policy
for the named roles, and
grants them what they may do. The expression has no sub-select, so that a table can be distributed
by tenant.
"""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa
from alembic import op

TENANT = "nullif(current_setting('hansei.tenant_id', true), '')::uuid"
ROLES = ("hansei_app", "hansei_worker")
ALL = "select, insert, update, delete"


def create_roles() -> None:
    """The two service roles. They can log in only once somebody gives them a password (`hansei
    migrate` or the operator).
    """
    for role in ROLES:
        op.execute(
            f"do $$ begin if not exists (select from pg_roles where rolname = '{role}') "
            f"then create role {role} nologin; end if; end $$"
        )
        op.execute(f"grant usage on schema public to {role}")


def protect(table: str, *, grant: str = ALL, column: str = "tenant_id") -> None:
    """Bind every row of `table` to its tenant. The owner is bound as well: it works for one tenant
    at a time.
    """
    rule = f"{column} = {TENANT}"
    op.execute(f"alter table {table} enable row level security")
    op.execute(f"alter table {table} force row level security")
    op.execute(
        f"create policy {table}_tenant on {table} to {', '.join(ROLES)}, current_user "
        f"using ({rule}) with check ({rule})"
    )
    op.execute(f"grant {grant} on {table} to {', '.join(ROLES)}")


def for_each_tenant(statement: str) -> None:
    """Run a statement bound to each tenant in turn: so the owner, too, sees its rows."""
    for tenant in op.get_bind().scalars(sa.text("select id from tenants order by id")).all():
        op.execute(f"set local hansei.tenant_id = '{UUID(str(tenant))}'")
        op.execute(sa.text(statement.replace(":", r"\:")))
    op.execute("set local hansei.tenant_id = ''")
