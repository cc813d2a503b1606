"""Foundation: tenants, traces, memories with search and history, runs and the queue."""

from __future__ import annotations

from alembic import op

from migrations.rls import ROLES, TENANT, create_roles, protect
from migrations.statements import statements

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "traces",
    "trace_events",
    "scopes",
    "labels",
    "memories",
    "memory_vectors",
    "postings",
    "scope_stats",
    "memory_links",
    "runs",
    "idempotency_keys",
)
QUEUE = ("pgqueuer", "pgqueuer_log", "pgqueuer_schedules", "pgqueuer_statistics")


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    create_roles()
    for file in ("0001_tables", "0001_history", "0001_queue"):
        for statement in statements(file):
            op.execute(statement)
    for table in TABLES:
        protect(table)
    protect("api_keys", grant="select, insert, update")
    protect("memory_revisions", grant="select")
    op.execute("grant insert on memory_revisions to current_user")
    op.execute("revoke delete on memories from hansei_app, hansei_worker")
    protect_tenants()
    for table in QUEUE:
        op.execute(f"grant select, insert, update, delete on {table} to {', '.join(ROLES)}")
    op.execute(f"grant usage, select on all sequences in schema public to {', '.join(ROLES)}")


def protect_tenants() -> None:
    """A tenant sees itself; the worker sees who there is and nothing else; the owner sees all, to
    administer them.
    """
    rule = f"id = {TENANT}"
    op.execute("alter table tenants enable row level security")
    op.execute("alter table tenants force row level security")
    op.execute(
        f"create policy tenants_own on tenants to hansei_app using ({rule}) with check ({rule})"
    )
    op.execute("create policy tenants_fan_out on tenants for select to hansei_worker using (true)")
    op.execute(
        "create policy tenants_owner on tenants to current_user using (true) with check (true)"
    )
    op.execute("grant select, insert, update on tenants to hansei_app")
    op.execute("grant select (id, status) on tenants to hansei_worker")


def downgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for table in ("memory_links", "memory_revisions", "memory_vectors", "postings", "scope_stats"):
        op.execute(f"drop table {table}")
    for table in ("memories", "scopes", "labels", "trace_events", "traces", "runs"):
        op.execute(f"drop table {table}")
    for table in ("idempotency_keys", "api_keys", "tenants", *QUEUE):
        op.execute(f"drop table {table}")
    for function in ("memory_revise()", "memory_keep()", "fn_pgqueuer_changed()"):
        op.execute(f"drop function {function}")
    op.execute("drop type pgqueuer_status")
