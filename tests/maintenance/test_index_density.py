"""The index that search reads is rebuilt when its pages are half empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from memory_api.core.db import Sessions, open_engine
from memory_api.maintenance.index_density import INDEX, MIN_BYTES, rebuild_sparse_index
from memory_api.maintenance.vector_indexes import TRY_LOCK
from tests.support.postgres import Server

pytestmark = pytest.mark.one_server("indexes of the nodes are not measured")
ROWS = 6_000
ADD_ROWS = """
insert into memory_vectors
select $1, 1, 1, n, 1, null, null, 0.5, 0.5, now(), '{}',
    array_fill(0.1::real, array[$4::int])::halfvec
from generate_series($2::int, $3::int) n
"""
PAGES = f"select pg_relation_size('{INDEX}') / 8192"
FIRST, LAST = "00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000001"


@pytest.fixture
async def admin(server: Server, worker_id: str) -> AsyncIterator[Any]:
    """A superuser's connection to a database of its own, which is not distributed."""
    name = f"density_{worker_id}"
    await server.clone(name)
    connection = await asyncpg.connect(server.url("postgres", name))
    await connection.execute("set session_replication_role = replica")
    yield connection
    await connection.close()
    await server.drop_database(name)


@pytest.fixture
def owner_url(server: Server, worker_id: str) -> str:
    return server.url("hansei_owner", f"density_{worker_id}")


@pytest.fixture
async def sessions(admin: Any, server: Server, worker_id: str) -> AsyncIterator[Sessions]:
    opened = Sessions(open_engine(server.url("hansei_app", f"density_{worker_id}"), pool_size=1))
    yield opened
    await opened.close()


async def fill_from_the_middle(admin: Any) -> None:
    """Most keys ascend before the pages of the last tenant."""
    await admin.execute(ADD_ROWS, LAST, 1, 100, 256)
    await admin.execute(ADD_ROWS, FIRST, 1, ROWS, 256)


async def test_index_with_half_empty_pages_is_rebuilt_once(
    admin: Any, sessions: Sessions, owner_url: str
) -> None:
    await fill_from_the_middle(admin)
    before = await admin.fetchval(PAGES)
    await admin.execute(f"create index {INDEX}_ccnew on memory_vectors (seq)")

    assert await rebuild_sparse_index(sessions, None) == []
    assert await admin.fetchval(PAGES) == before
    assert await rebuild_sparse_index(sessions, owner_url) == [INDEX]
    assert await admin.fetchval(PAGES) < 0.7 * before
    assert await admin.fetchval("select to_regclass($1)", f"{INDEX}_ccnew") is None
    assert await rebuild_sparse_index(sessions, owner_url) == [], "it is dense now"


@pytest.mark.parametrize("dimensions", [64, 256, 768, 1024])
async def test_dense_index_is_not_rebuilt(
    admin: Any, sessions: Sessions, owner_url: str, dimensions: int
) -> None:
    await admin.execute(ADD_ROWS, LAST, 1, ROWS, dimensions)
    await admin.execute(f"reindex index {INDEX}")
    before = await admin.fetchval(PAGES)
    assert before * 8192 > MIN_BYTES
    assert await rebuild_sparse_index(sessions, owner_url) == []
    assert await admin.fetchval(PAGES) == before


async def test_second_process_leaves_rebuild_to_first(
    admin: Any, sessions: Sessions, owner_url: str
) -> None:
    await fill_from_the_middle(admin)
    assert await admin.fetchval(TRY_LOCK)
    assert await rebuild_sparse_index(sessions, owner_url) == []
