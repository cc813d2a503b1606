"""The initial schema: tables, the search function, history triggers, the queue, and policies."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

from migrations.rls import protect
from migrations.search import definition
from migrations.statements import statements

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

WRITABLE_TABLES = (
    *("runs", "idempotency_keys", "traces", "trace_events", "trace_evaluations", "scopes"),
    *("labels", "memory_vectors", "postings", "scope_stats", "memory_links", "memory_usage"),
    *("playbooks", "playbook_proposals", "bullet_verdicts", "retrievals", "curated_lessons"),
    *("embedding_models", "budgets", "budget_reservations"),
)

DROP_STATEMENTS = """
select format('drop view %I', relname) from pg_class
where relnamespace = 'public'::regnamespace and relkind = 'v'
union all
select format('drop table %I cascade', relname) from pg_class
where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
  and relname <> 'alembic_version'
union all
select format('drop function %s', oid::regprocedure) from pg_proc
where pronamespace = 'public'::regnamespace
  and not exists (select from pg_depend d where d.objid = pg_proc.oid and d.deptype = 'e')
union all
select format('drop type %I', typname) from pg_type
where typnamespace = 'public'::regnamespace and typtype = 'e'
"""


def upgrade() -> None:
    op.execute("set local lock_timeout = '5s'")
    for statement in _schema():
        op.execute(sa.text(statement.replace(":", r"\:")))
    protect(*WRITABLE_TABLES)
    protect("api_keys", "memories", privileges="select, insert, update")
    protect("playbook_versions", "llm_calls", privileges="select, insert")
    # Only the history triggers write these.
    protect("memory_revisions", "bullet_spans", privileges="select")


def _schema() -> Iterator[str]:
    yield from statements("tables")
    yield definition()
    for file in ("history", "queue", "policies"):
        yield from statements(file)


def downgrade() -> None:
    """Drop everything in the schema except extensions."""
    op.execute("set local lock_timeout = '5s'")
    for statement in op.get_bind().scalars(sa.text(DROP_STATEMENTS.replace(":", r"\:"))).all():
        op.execute(statement)
