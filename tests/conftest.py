"""Fixtures every test may use: a real database as the unprivileged role, a runtime, the API, and a
fresh tenant each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI

from apps.memory_api.core.db import Sessions, open_engine
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.settings import Settings
from apps.memory_api.core.telemetry import configure
from apps.memory_api.main import create_app
from apps.memory_api.runtime import Runtime, open_runtime
from apps.memory_api.tenants.identity import Access, tenant_id_of
from apps.memory_api.tenants.queries import create_key, create_tenant
from apps.memory_api.worker import work
from tests import postgres
from tests.queue import waiting_tickets
from tests.stub_provider.guard import forbid_real_providers

forbid_real_providers()

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data beside the project; tests that need it are skipped where it is
    not."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not here")
    return SHARED


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[postgres.Server]:
    """One real PostgreSQL for the whole run, with a migrated template database."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    if os.environ.get("HANSEI_TEST_PG", "embedded") == "container":
        if not postgres.docker_answers():
            pytest.skip("HANSEI_TEST_PG=container: no Docker engine answers")
        with postgres.container() as box:
            asyncio.run(box.make_template())
            yield box
        return
    with postgres.embedded(folder) as running:
        with postgres.once(folder, "template") as first:
            if first:
                asyncio.run(running.make_template())
        yield running


@dataclass(frozen=True)
class Database:
    """One database of the test server, as each of its roles."""

    server: postgres.Server
    name: str

    def url(self, role: str) -> str:
        return self.server.url(role, self.name)


@pytest.fixture(scope="session")
def database(server: postgres.Server, worker_id: str) -> Database:
    """This worker's database. Refuses to go on with a role that could see past row-level
    security."""
    name = f"hansei_{worker_id}"
    asyncio.run(server.clone(name))
    made = Database(server, name)
    for role in ("hansei_app", "hansei_worker"):
        asyncio.run(assert_unprivileged(made.url(role)))
    return made


async def assert_unprivileged(url: str) -> None:
    """Fails when the role is a superuser, bypasses row-level security, or owns anything."""
    connection = await asyncpg.connect(url)
    try:
        role = await connection.fetchrow(
            "select rolsuper, rolbypassrls,"
            " (select count(*) from pg_class c where c.relowner = r.oid) owned"
            " from pg_roles r where rolname = current_user"
        )
    finally:
        await connection.close()
    assert not role["rolsuper"], "tests must not run as a superuser"
    assert not role["rolbypassrls"], "tests must not run as a role that bypasses row-level security"
    assert role["owned"] == 0, "tests must not run as a role that owns tables"


@pytest.fixture(scope="session")
def settings() -> Settings:
    """Settings that no environment of the machine reaches."""
    return Settings(_env_file=None, lease_seconds=5)  # type: ignore[call-arg]


@pytest.fixture(autouse=True, scope="session")
def quiet_logs() -> None:
    configure("console", "error")


@pytest.fixture(scope="session")
async def runtime(settings: Settings, database: Database) -> AsyncIterator[Runtime]:
    async with open_runtime(settings, database.url("hansei_app")) as opened:
        yield opened


@pytest.fixture(scope="session")
async def owner(database: Database) -> AsyncIterator[Sessions]:
    """Sessions as the owner of the tables: for making tenants, never for what is tested."""
    sessions = Sessions(open_engine(database.url("hansei_owner"), pool_size=2))
    yield sessions
    await sessions.close()


@dataclass
class TestTenant:
    """A tenant of one test, with a key of each kind."""

    __test__ = False

    id: UUID
    slug: str
    keys: dict[str, str] = field(default_factory=dict)

    def auth(self, scope: str = "admin") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[scope]}"}


@pytest.fixture
def make_tenant(owner: Sessions) -> Callable[[], Awaitable[TestTenant]]:
    async def make() -> TestTenant:
        slug = f"t-{new_id()}"
        tenant = TestTenant(tenant_id_of(slug), slug)
        async with owner.tenant(tenant.id) as session:
            await create_tenant(session, slug)
            for access in Access:
                _, key = await create_key(session, scopes=[access], name=access)
                tenant.keys[access.value] = key.text
        return tenant

    return make


@pytest.fixture
async def tenant(make_tenant: Callable[[], Awaitable[TestTenant]]) -> TestTenant:
    """A tenant nobody else has."""
    return await make_tenant()


@pytest.fixture(scope="session")
async def app(runtime: Runtime) -> AsyncIterator[FastAPI]:
    made = create_app(runtime.settings, runtime=runtime)
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture(scope="session")
async def http(app: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    """The API without a key."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://hansei") as client:
        yield client


@pytest.fixture
async def api(app: FastAPI, tenant: TestTenant) -> AsyncIterator[httpx2.AsyncClient]:
    """The API with the tenant's administrator key."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://hansei", headers=tenant.auth()
    ) as client:
        yield client


@pytest.fixture
def drain(runtime: Runtime) -> Callable[[UUID], Awaitable[int]]:
    """Do all work that waits for a tenant, as a worker would, in this process. Answers how many
    runs."""

    async def work_off(tenant_id: UUID) -> int:
        done = 0
        while tickets := await waiting_tickets(runtime, tenant_id):
            for ticket in tickets:
                await work(runtime, ticket)
                done += 1
        return done

    return work_off
