"""Which scopes have a vector index, by the size that their statistics say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apps.memory_api.core.db import Sessions, open_engine
from apps.memory_api.memory.hybrid import part
from apps.memory_api.workers.index import FEW, MANY, Scope, keep_indexes
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
    async with sessions.statement() as driver, driver.transaction():
        await driver.execute(f"set local hansei.tenant_id = '{tenant}'")
        await driver.execute(
            "delete from scope_stats where tenant_id = $1 and scope = $2", tenant, SCOPE
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


async def test_an_index_comes_and_goes_with_the_size(
    planned: Planned, sessions: Sessions, owner_role: Any
) -> None:
    tenant, url = planned.tenants["middle"], planned.url("hansei_owner")
    name = Scope(tenant, SCOPE, 1).index

    await resize(planned, sessions, "big", SIZES["big"])

    async def kept(size: int) -> dict[str, list[str]]:
        await resize(planned, sessions, "middle", size)
        return await keep_indexes(sessions, url, tenant)

    assert await kept(MANY - 1) == {"made": [], "dropped": []}
    assert await kept(MANY) == {"made": [name], "dropped": []}
    assert await there(owner_role) == {name: True}
    assert await kept(MANY) == {"made": [], "dropped": []}
    assert await kept(FEW) == {"made": [], "dropped": []}
    assert await keep_indexes(sessions, url, planned.tenants["big"]) == {"made": [], "dropped": []}
    assert await kept(FEW - 1) == {"made": [], "dropped": [name]}
    assert await there(owner_role) == {}


async def test_without_the_owner_nothing_is_made(planned: Planned, sessions: Sessions) -> None:
    await resize(planned, sessions, "middle", MANY)
    tenant = planned.tenants["middle"]
    assert await keep_indexes(sessions, None, tenant) == {"made": [], "dropped": []}
    await resize(planned, sessions, "middle", SIZES["middle"])


async def test_an_index_that_failed_is_made_anew(
    planned: Planned, sessions: Sessions, owner_role: Any, server: Any
) -> None:
    await resize(planned, sessions, "middle", MANY)
    tenant, url = planned.tenants["middle"], planned.url("hansei_owner")
    (name,) = (await keep_indexes(sessions, url, tenant))["made"]
    await server.run(
        f"update pg_index set indisvalid = false where indexrelid = '{name}'::regclass",
        planned.name,
    )
    assert await keep_indexes(sessions, url, tenant) == {"made": [name], "dropped": [name]}
    assert await there(owner_role) == {name: True}
    await resize(planned, sessions, "middle", 0)
    await keep_indexes(sessions, url, tenant)


def test_search_looks_for_the_names_that_are_made(planned: Planned) -> None:
    assert "format('hansei_hnsw_%s_%s_%s', replace(_t::text, '-', ''), " in part("indexed")
    tenant = planned.tenants["big"]
    assert Scope(tenant, 7, 1).index == f"hansei_hnsw_{str(tenant).replace('-', '')}_7_1"
    assert len(Scope(tenant, 2**31, 999_999).index) <= 63
