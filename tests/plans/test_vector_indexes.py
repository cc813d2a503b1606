"""Which scopes have a vector index, by the size that their statistics say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory_api.core.db import Sessions, open_engine
from memory_api.maintenance.vector_indexes import (
    CREATE_ABOVE_ROWS,
    DROP_BELOW_ROWS,
    IndexedScope,
    sync_vector_indexes,
)
from migrations.search import part
from tests.plans.conftest import SIZES, Planned

SCOPE = 2


@pytest.fixture
async def sessions(planned: Planned) -> AsyncIterator[Sessions]:
    opened = Sessions(open_engine(planned.url("hansei_app"), pool_size=1))
    yield opened
    await opened.close()


async def resize(planned: Planned, sessions: Sessions, who: str, size: int) -> None:
    """Make the statistics of the tenant's scope say `size`."""
    tenant = planned.tenants[who]
    async with sessions.raw_connection() as driver, driver.transaction():
        await driver.execute(f"set local hansei.tenant_id = '{tenant}'")
        await driver.execute(
            "delete from scope_stats where tenant_id = $1 and scope_id = $2", tenant, SCOPE
        )
        await driver.execute(
            "insert into scope_stats values ($1, $2, gen_random_uuid(), $3)", tenant, SCOPE, size
        )


async def there(owner: Any) -> dict[str, bool]:
    rows = await owner.fetch(
        "select c.relname, x.indisvalid from pg_class c join pg_index x on x.indexrelid = c.oid"
        " where c.relname like 'hansei_hnsw_%'"
    )
    return {row["relname"]: row["indisvalid"] for row in rows}


async def test_vector_index_follows_size_of_scope(
    planned: Planned, sessions: Sessions, owner_role: Any
) -> None:
    tenant, url = planned.tenants["middle"], planned.url("hansei_owner")
    name = IndexedScope(tenant, SCOPE, 1).index

    await resize(planned, sessions, "big", SIZES["big"])

    async def kept(size: int) -> dict[str, list[str]]:
        await resize(planned, sessions, "middle", size)
        return await sync_vector_indexes(sessions, url, tenant)

    assert await kept(CREATE_ABOVE_ROWS - 1) == {"created": [], "dropped": []}
    assert await kept(CREATE_ABOVE_ROWS) == {"created": [name], "dropped": []}
    assert await there(owner_role) == {name: True}
    assert await kept(CREATE_ABOVE_ROWS) == {"created": [], "dropped": []}
    assert await kept(DROP_BELOW_ROWS) == {"created": [], "dropped": []}
    assert await sync_vector_indexes(sessions, url, planned.tenants["big"]) == {
        "created": [],
        "dropped": [],
    }
    assert await kept(DROP_BELOW_ROWS - 1) == {"created": [], "dropped": [name]}
    assert await there(owner_role) == {}


async def test_no_index_is_created_without_owner_connection(
    planned: Planned, sessions: Sessions
) -> None:
    await resize(planned, sessions, "middle", CREATE_ABOVE_ROWS)
    tenant = planned.tenants["middle"]
    assert await sync_vector_indexes(sessions, None, tenant) == {"created": [], "dropped": []}
    await resize(planned, sessions, "middle", SIZES["middle"])


async def test_invalid_index_is_rebuilt(
    planned: Planned, sessions: Sessions, owner_role: Any, server: Any
) -> None:
    await resize(planned, sessions, "middle", CREATE_ABOVE_ROWS)
    tenant, url = planned.tenants["middle"], planned.url("hansei_owner")
    (name,) = (await sync_vector_indexes(sessions, url, tenant))["created"]
    await server.run(
        f"update pg_index set indisvalid = false where indexrelid = '{name}'::regclass",
        planned.name,
    )
    assert await sync_vector_indexes(sessions, url, tenant) == {
        "created": [name],
        "dropped": [name],
    }
    assert await there(owner_role) == {name: True}
    await resize(planned, sessions, "middle", 0)
    await sync_vector_indexes(sessions, url, tenant)


def test_search_uses_names_of_created_indexes(planned: Planned) -> None:
    assert "format('hansei_hnsw_%s_%s_%s', replace(p_tenant_id::text, '-', ''), " in part(
        "vector_index"
    )
    tenant = planned.tenants["big"]
    assert IndexedScope(tenant, 7, 1).index == f"hansei_hnsw_{str(tenant).replace('-', '')}_7_1"
    assert len(IndexedScope(tenant, 2**31, 999_999).index) <= 63
