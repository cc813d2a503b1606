"""The initial schema.

Its text is in `sql/*.sql`. From 0.1.0 on it is frozen: `tests/migrations/test_frozen.py` fails when
a file changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

from migrations.login_views import login_views
from migrations.rls import protect
from migrations.search import search_function
from migrations.statements import read_statements

revision = "0001_initial"
down_revision = None
branch_labels = None
depends_on = None

WRITABLE_TABLES = (
    *("runs", "idempotency_keys", "traces", "trace_events", "trace_evaluations", "scopes"),
    *("labels", "memory_vectors", "postings", "scope_stats", "memory_links", "memory_usage"),
    *("playbooks", "playbook_proposals", "bullet_verdicts", "retrievals", "curated_lessons"),
    *("embedding_models", "budgets", "budget_reservations", "budget_totals", "inbox_lessons"),
    *("playbook_curations", "maintenance_tasks", "retention_policies", "entities"),
    *("memory_entities", "memory_clusters", "collections", "documents", "document_parts"),
    *("document_pages", "agent_runs", "agent_steps", "agent_events", "interventions"),
    *("agent_calibrations", "retrieval_secrets", "console_sessions", "webhooks"),
    *("webhook_deliveries", "saved_statements", "response_mentions", "evaluation_reports"),
)

DROP_STATEMENTS = """
select 'drop schema if exists analytics, questions cascade'
union all
select format('drop view if exists %I cascade', relname) from pg_class
where relnamespace = 'public'::regnamespace and relkind = 'v'
union all
select format('drop table %I cascade', relname) from pg_class
where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
  and relname <> 'alembic_version'
union all
select format('drop function %s', oid::regprocedure) from pg_proc
where pronamespace = 'public'::regnamespace and pg_get_userbyid(proowner) = current_user
  and not exists (select from pg_depend d where d.objid = pg_proc.oid and d.deptype = 'e')
union all
select format('drop type %I', typname) from pg_type
where typnamespace = 'public'::regnamespace and typtype = 'e'
"""


def statements() -> Iterator[str]:
    yield from read_statements("tables")
    yield search_function()
    for file in (
        *("history", "queue", "policies", "inbox", "cost", "audit_log", "upkeep", "erasures"),
        *("collections", "retrievals", "relations", "webhooks", "console", "agent_runs"),
        *("analytics", "near_duplicates", "analytics_flow", "effects", "analysts"),
    ):
        yield from read_statements(file)
    yield from login_views()
    yield from read_statements("analytics_comments")
    yield from protect(*WRITABLE_TABLES)
    yield from protect("api_keys", "memories", "erasures", privileges="select, insert, update")
    yield from protect(
        "budget_alerts", "llm_replies", "llm_calls", privileges="select, insert, delete"
    )
    # Rows are added and never changed.
    yield from protect("playbook_versions", "tombstones", "audit_log", privileges="select, insert")
    # Only triggers write the first two, and only the owner the last.
    yield from protect("memory_revisions", "bullet_spans", "sql_credentials", privileges="select")


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in statements():
        op.execute(sa.text(statement.replace(":", r"\:")))


def downgrade() -> None:
    """Drops everything in the schema except extensions. The roles remain."""
    op.execute("set local lock_timeout = '5s'")
    for statement in op.get_bind().scalars(sa.text(DROP_STATEMENTS.replace(":", r"\:"))).all():
        op.execute(statement)
