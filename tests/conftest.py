"""Fixtures every test may use: a real database as the unprivileged role, a runtime, the API, and a
fresh tenant each."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI

from memory_api.auth.identity import KeyScope, generate_key
from memory_api.auth.queries import create_tenant
from memory_api.auth.tables import ApiKeyRow
from memory_api.bootstrap import freeze_startup_objects, open_runtime
from memory_api.core.db import Sessions, open_engine
from memory_api.core.ids import new_id, to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.main import create_app
from memory_api.maintenance import upkeep
from memory_api.runtime import Runtime
from memory_api.worker import RUN_STEPS, Steps, process_ticket
from tests.support import citus, postgres
from tests.support.paths import SHARED
from tests.support.scheduling import make_scheduler, order_by_length
from tests.support.stub_provider.guard import forbid_real_providers
from tests.support.tickets import waiting_tickets

forbid_real_providers()

# Clients of providers are opened by the hundred, and none of them speaks TLS.
ssl.create_default_context = cache(ssl.create_default_context)

# Processes that tests start load the service in half the time from cached bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = [
    "tests.support.ace_playbook",
    "tests.support.demo",
    "tests.support.live_service",
    "tests.support.model_clients",
    "tests.support.model_service",
    "tests.support.webhook_receiver",
    "tests.support.worker_processes",
]


WITH_PROCESSES = {
    *("bench", "deploy", "e2e", "embedded", "faults", "migrations", "observability", "plans")
}
"""Folders whose tests start processes or servers."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """One process runs the tests that share an expensive fixture."""
    return make_scheduler(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `fast` (`make test-fast`) what needs no database, and what is marked `smoke`; run the
    longest tests first. Skip on a cluster what is marked `one_server`."""
    order_by_length(items)
    on_cluster = citus.is_cluster(os.environ.get("HANSEI_TEST_PG", ""))
    for item in items:
        if on_cluster and (marker := item.get_closest_marker("one_server")):
            item.add_marker(pytest.mark.skip(reason=f"on a cluster: {marker.args[0]}"))
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        fixtures = getattr(item, "fixturenames", ())
        slow = folder in WITH_PROCESSES or "server" in fixtures or item.get_closest_marker("slow")
        if not slow or item.get_closest_marker("smoke"):
            item.add_marker("fast")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude tests and modules from garbage collection, as a process of the service does with its
    objects: thousands of times, a collection would find nothing among them."""
    freeze_startup_objects()


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
    version = os.environ.get("HANSEI_TEST_PG", "embedded")
    with ExitStack() as stack:
        if version == "embedded":
            opened = stack.enter_context(postgres.embedded(folder))
        elif version.startswith("postgresql:"):
            opened = asyncio.run(citus.open_cluster(version)) or postgres.open_other_server(version)
        elif postgres.docker_answers():
            opened = postgres.open_other_server(stack.enter_context(postgres.container(version)))
            folder = base
        else:
            pytest.fail(f"HANSEI_TEST_PG={version}: no Docker engine answers")
        with postgres.once(folder, "template") as first:
            if first:
                asyncio.run(opened.make_template())
        yield opened


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
    return Settings(
        _env_file=None,  # type: ignore[call-arg]
        lease_seconds=5,
        curation_interval=0,
        rate_limit_failed_keys="off",  # all tests have the same address
    )


@pytest.fixture(autouse=True, scope="session")
def quiet_logs() -> None:
    configure_logging("console", "error")


@pytest.fixture(scope="session")
async def runtime(settings: Settings, database: Database) -> AsyncIterator[Runtime]:
    async with open_runtime(settings, database.url("hansei_app")) as opened:
        yield opened


@pytest.fixture(scope="session")
async def worker_runtime(settings: Settings, database: Database) -> AsyncIterator[Runtime]:
    """A runtime as the worker's role, which alone sees all tenants."""
    async with open_runtime(settings, database.url("hansei_worker")) as opened:
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
def tenants_of_test() -> list[UUID]:
    """The tenants that the test made so far."""
    return []


async def create_test_tenant(owner: Sessions) -> TestTenant:
    """A new tenant with a key of each scope."""
    slug = f"t-{new_id()}"
    tenant = TestTenant(to_tenant_id(slug), slug)
    keys = {scope: generate_key(tenant.id) for scope in KeyScope}
    async with owner.for_tenant(tenant.id) as session:  # only two statements
        await create_tenant(session, slug)
        session.add_all(
            ApiKeyRow(
                tenant_id=tenant.id,
                id=new_id(),
                name=scope.value,
                secret_hash=key.secret_hash,
                scopes=[scope.value],
            )
            for scope, key in keys.items()
        )
    tenant.keys.update({scope.value: key.text for scope, key in keys.items()})
    return tenant


@pytest.fixture
def make_tenant(
    owner: Sessions, tenants_of_test: list[UUID]
) -> Callable[[], Awaitable[TestTenant]]:
    async def make() -> TestTenant:
        tenant = await create_test_tenant(owner)
        tenants_of_test.append(tenant.id)
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
def upkeep_of_test_tenants(tenants_of_test: list[UUID], monkeypatch: pytest.MonkeyPatch) -> None:
    """There are thousands of tenants from tests before this one: here upkeep is due for those of
    this test, at once."""

    async def claim_mine(_runtime: Runtime) -> list[UUID]:
        return list(tenants_of_test)

    monkeypatch.setattr(upkeep, "claim_due_tenants", claim_mine)


@pytest.fixture(scope="session")
def drain(runtime: Runtime) -> Callable[..., Awaitable[int]]:
    """Do all work that waits for a tenant, as a worker would, in this process. Answers how many
    runs."""

    async def work_off(tenant_id: UUID, steps: Steps = RUN_STEPS) -> int:
        done = 0
        while tickets := await waiting_tickets(runtime, tenant_id):
            for ticket in tickets:
                await process_ticket(runtime, ticket, steps)
                done += 1
        return done

    return work_off
