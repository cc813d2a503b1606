"""Fills a tenant with a playbook and its history at fixed times (`analytics_rows.sql`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import asyncpg

ROWS = (Path(__file__).parent / "analytics_rows.sql").read_text(encoding="utf-8")


@dataclass(frozen=True)
class History:
    """How much history a tenant gets, spread evenly over `days`."""

    bullets: int
    revisions: int
    verdicts: int
    traces: int
    days: int
    starts_at: datetime


SAMPLE = History(24, 120, 600, 120, 60, datetime(2025, 6, 1, tzinfo=UTC))
"""The data of tests/support/analytics_examples.sql."""


async def fill(superuser_url: str, tenant_id: UUID, history: History) -> None:
    connection = await asyncpg.connect(superuser_url)
    try:
        async with connection.transaction():
            # With Citus, also on the nodes.
            await connection.execute("set local citus.propagate_set_commands = 'local'")
            await connection.execute("set local session_replication_role = replica")
            await connection.execute(
                "create temporary table wanted (tenant_id uuid, bullets int, revisions int,"
                " verdicts int, traces int, days int, starts_at timestamptz) on commit drop"
            )
            values = (history.bullets, history.revisions, history.verdicts, history.traces)
            await connection.execute(
                "insert into wanted values ($1, $2, $3, $4, $5, $6, $7)",
                tenant_id,
                *values,
                history.days,
                history.starts_at,
            )
            await connection.execute(ROWS)
    finally:
        await connection.close()
