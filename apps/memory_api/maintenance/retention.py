"""Delete expired rows in batches. Each batch is a transaction of its own, so locks are short."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import TextClause

from apps.memory_api.api.idempotency import RETENTION
from apps.memory_api.core.db import current_tenant_id
from apps.memory_api.core.resources import load_sql
from apps.memory_api.runtime import Runtime

DELETE_RETRIEVALS = load_sql("maintenance/maintenance.sql", "delete_retrievals")
DELETE_IDEMPOTENCY_KEYS = load_sql("maintenance/maintenance.sql", "delete_idempotency_keys")
DELETE_RESERVATIONS = load_sql("maintenance/maintenance.sql", "delete_reservations")
DELETE_STORED_REPLIES = load_sql("maintenance/maintenance.sql", "delete_stored_replies")
DELETE_BUDGET_TOTALS = load_sql("maintenance/maintenance.sql", "delete_budget_totals")
RESERVATION_RETENTION = timedelta(days=32)
"""A month and a day: the totals of a month can be checked until it has ended."""
STORED_REPLY_RETENTION = timedelta(days=1)
TOTAL_RETENTION = timedelta(days=400)
"""Of totals and alerts of budgets."""
ROWS_PER_BATCH = 5_000
MAX_BATCHES_PER_ROUND = 100
"""Upkeep continues in its next round."""


async def delete_old_retrievals(runtime: Runtime, tenant_id: UUID) -> int:
    """Deletes retrievals older than HANSEI_RETRIEVAL_RETENTION_DAYS. Returns their number."""
    retention = timedelta(days=runtime.settings.retrieval_retention_days)
    return await _delete_in_batches(runtime, tenant_id, DELETE_RETRIEVALS, retention)


async def delete_expired_idempotency_keys(runtime: Runtime, tenant_id: UUID) -> int:
    """Deletes expired idempotency keys. Returns their number."""
    return await _delete_in_batches(runtime, tenant_id, DELETE_IDEMPOTENCY_KEYS, RETENTION)


async def delete_old_reservations(runtime: Runtime, tenant_id: UUID) -> int:
    """Deletes budget reservations of past months. Returns their number."""
    return await _delete_in_batches(runtime, tenant_id, DELETE_RESERVATIONS, RESERVATION_RETENTION)


async def delete_old_stored_replies(runtime: Runtime, tenant_id: UUID) -> int:
    """Deletes replies of models that no run has used for a day. Returns their number."""
    return await _delete_in_batches(
        runtime, tenant_id, DELETE_STORED_REPLIES, STORED_REPLY_RETENTION
    )


async def delete_old_totals(runtime: Runtime, tenant_id: UUID) -> int:
    """Deletes totals of budgets, and their alerts, after 400 days. Returns the number of totals."""
    return await _delete_in_batches(runtime, tenant_id, DELETE_BUDGET_TOTALS, TOTAL_RETENTION)


async def delete_expired_rows(runtime: Runtime, tenant_id: UUID) -> dict[str, int]:
    """Deletes what has expired. Returns the number of rows by kind."""
    return {
        "retrievals_deleted": await delete_old_retrievals(runtime, tenant_id),
        "idempotency_keys_deleted": await delete_expired_idempotency_keys(runtime, tenant_id),
        "reservations_deleted": await delete_old_reservations(runtime, tenant_id),
        "stored_replies_deleted": await delete_old_stored_replies(runtime, tenant_id),
        "budget_totals_deleted": await delete_old_totals(runtime, tenant_id),
    }


async def _delete_in_batches(
    runtime: Runtime, tenant_id: UUID, statement: TextClause, retention: timedelta
) -> int:
    before = datetime.now(UTC) - retention
    deleted_count = 0
    for _ in range(MAX_BATCHES_PER_ROUND):
        async with runtime.sessions.for_tenant(tenant_id) as session:
            parameters = {
                "tenant": current_tenant_id(session),
                "before": before,
                "batch_size": ROWS_PER_BATCH,
            }
            batch_size = len((await session.execute(statement, parameters)).all())
        deleted_count += batch_size
        if batch_size < ROWS_PER_BATCH:
            break
    return deleted_count
