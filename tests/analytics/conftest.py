"""A tenant with two months of history, and a read-only login for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url

from bench.analytics_rows import SAMPLE, fill
from memory_api.analytics.queries import create_login, drop_login
from memory_api.core.db import Sessions
from tests.conftest import Database, TestTenant

PASSWORD = "a password of the tests"


@pytest.fixture
async def sample(tenant: TestTenant, database: Database) -> TestTenant:
    """A tenant with the sample of tests/support/analytics_results.md: June and July 2025."""
    await fill(database.url("postgres"), tenant.id, SAMPLE)
    return tenant


OpenLogin = Callable[[TestTenant], Awaitable[Any]]


@pytest.fixture
async def open_login(owner: Sessions, database: Database) -> AsyncIterator[OpenLogin]:
    """Creates a login for a tenant and connects with it."""
    made: list[tuple[TestTenant, str, Any]] = []

    async def make(tenant: TestTenant) -> Any:
        async with owner.for_tenant(tenant.id) as session:
            name = await create_login(session, PASSWORD)
        url = make_url(database.url("hansei_owner")).set(username=name, password=PASSWORD)
        connection = await asyncpg.connect(url.render_as_string(hide_password=False))
        made.append((tenant, name, connection))
        return connection

    yield make
    for tenant, name, connection in made:
        await connection.close()
        async with owner.for_tenant(tenant.id) as session:
            assert await drop_login(session, name)
