"""Row-level security of the tables with tenants' rows."""

from __future__ import annotations

from collections.abc import Iterator

EVERYTHING = "select, insert, update, delete"

_TENANT_RULE = "tenant_id = nullif(current_setting('hansei.tenant_id', true), '')::uuid"


def protect(*tables: str, privileges: str = EVERYTHING) -> Iterator[str]:
    """Statements that limit everyone to the rows of the bound tenant, the owner included, and grant
    `privileges` on the tables to the service roles. The rule has no subquery, so that a table can
    be distributed by tenant.
    """
    for table in tables:
        yield f"alter table {table} enable row level security"
        yield f"alter table {table} force row level security"
        yield (
            f"create policy {table}_tenant on {table} to hansei_app, hansei_worker, current_user"
            f" using ({_TENANT_RULE}) with check ({_TENANT_RULE})"
        )
        yield f"grant {privileges} on {table} to hansei_app, hansei_worker"
