"""What `hansei doctor` says of the model's provider and of what search stands on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from apps.memory_api.commands import doctor
from apps.memory_api.commands.database import Urls
from apps.memory_api.commands.finding import Finding
from apps.memory_api.commands.look_memories import look_at_memories
from apps.memory_api.commands.look_model import look_at_model
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.loaded import Spec
from apps.memory_api.embeddings.tables import EmbeddingModel
from apps.memory_api.memory.tables import Memory
from apps.memory_api.runtime import Runtime
from apps.memory_api.workers import index, reembed
from tests.conftest import Database, TestTenant
from tests.stub_provider import StubProvider, server_error, unauthorized
from tests.workers.moving import Mover, close_all, insights, process, remember

KEY = "sk-never-to-be-shown"


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await close_all()


@pytest.fixture
def look(database: Database):
    """All findings, by name."""

    async def findings(**settings: Any) -> dict[str, Finding]:
        given = Settings(_env_file=None, **settings)  # type: ignore[call-arg]
        roles = ("hansei_app", "hansei_worker", "hansei_owner")
        found = await doctor.look(given, Urls(*(database.url(role) for role in roles)))
        return {one.name: one for one in found}

    return findings


@pytest.fixture
def look_at(runtime: Runtime):
    """The findings about some tenants, by name."""

    async def findings(*tenants: TestTenant) -> dict[str, Finding]:
        found = await look_at_memories(process(runtime), [one.id for one in tenants])
        return {one.name: one for one in found}

    return findings


def settings(**given: Any) -> Settings:
    return Settings(_env_file=None, **given)  # type: ignore[call-arg]


def openai(url: str, model: str = "some-model") -> Settings:
    return settings(llm_provider="openai", llm_model=model, openai_api_key=KEY, openai_base_url=url)


async def test_a_well_installation(look: Any) -> None:
    found = await look()
    names = ("connection", "role", "extension", "schema", "embedder")
    assert {name for name in names if not found[name].well} == set()
    assert {"embeddings", "tokeniser", "indexes", "queue"} < found.keys()
    assert found["model"] == Finding("model", True, "none is configured: rules think")


async def test_a_well_tenant(look_at: Any, runtime: Runtime, tenant: TestTenant) -> None:
    await remember(runtime, tenant.id, insights(1))
    found = await look_at(tenant)
    assert {name for name, one in found.items() if not one.well or one.mend} == set()
    assert found["embeddings"].found == "1 × static-minilm-256/1"
    assert found["tokeniser"].found == "hansei-terms/1"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_provider_that_answers_is_asked_for_nothing_that_costs(
    stub: StubProvider, provider: str
) -> None:
    given = openai(stub.openai_url)
    if provider == "anthropic":
        given = settings(
            llm_provider="anthropic",
            llm_model="some-model",
            anthropic_api_key=KEY,
            anthropic_base_url=stub.anthropic_url,
        )
    found = await look_at_model(given)
    assert (found.well, found.mend) == (True, "")
    assert "takes the key" in found.found
    assert [call.api for call in stub.calls] == ["models"]


async def test_what_is_wrong_with_a_provider_and_how_to_mend_it(stub: StubProvider) -> None:
    stub.queue(unauthorized())
    refused = await look_at_model(openai(stub.openai_url))
    assert (refused.well, "refused" in refused.found) == (False, True)
    assert "OPENAI_API_KEY" in refused.mend
    stub.queue(server_error())
    ill = await look_at_model(openai(stub.openai_url))
    assert (ill.well, "llm_server_error" in ill.found) == (False, True)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        away = await look_at_model(openai(f"http://127.0.0.1:{taken.getsockname()[1]}/v1"))
    assert (away.well, "llm_connection" in away.found) == (False, True)
    strange = await look_at_model(openai(stub.openai_url, "nobody-knows-it"))
    assert (strange.well, "nobody-knows-it" in strange.mend) == (True, True)
    for one in (refused, ill, away, strange):
        assert KEY not in str(one)


async def test_a_model_without_its_key(look: Any) -> None:
    found = (await look(llm_provider="anthropic"))["model"]
    assert (found.well, "anthropic" in found.found) == (False, True)
    assert "key" in found.mend


async def test_a_move_under_way_one_that_stopped_and_old_vectors(
    look_at: Any, runtime: Runtime, tenant: TestTenant, stub: StubProvider, make_tenant: Any
) -> None:
    spec = Spec("openai", "embed-b", 64, stub.openai_url)
    moving, stopped, moved = tenant, await make_tenant(), await make_tenant()
    movers = {one.id: Mover(process(runtime), one.id) for one in (moving, stopped, moved)}
    for one in movers:
        await remember(runtime, one, insights(2))
    run = await movers[moving.id].start(spec)
    found = (await look_at(moving))["embeddings"]
    assert f"{moving.id} to openai/embed-b@64" in found.found
    await reembed.cancel(runtime, moving.id)
    assert f"{moving.id} to" not in (await look_at(moving))["embeddings"].found

    run = await movers[stopped.id].start(spec)
    async with runtime.sessions.tenant(stopped.id) as session:
        row = await session.get_one(type(run), (stopped.id, run.id))
        row.state = "dead"
    found = (await look_at(stopped))["embeddings"]
    assert (found.well, str(stopped.id) in found.found) == (False, True)
    assert "hansei reembed" in found.mend
    await reembed.cancel(runtime, stopped.id)

    await movers[moved.id].move(spec)
    async with runtime.sessions.tenant(moved.id) as session:
        await session.execute(
            update(EmbeddingModel)
            .where(EmbeddingModel.tenant_id == moved.id, EmbeddingModel.state == "retiring")
            .values(since=EmbeddingModel.since - timedelta(hours=2))
        )
    found = (await look_at(moved))["embeddings"]
    assert (found.well, str(moved.id) in found.found) == (False, True)
    assert "hansei worker" in found.mend


async def test_a_model_that_this_process_cannot_load(
    look_at: Any, runtime: Runtime, tenant: TestTenant
) -> None:
    async with runtime.sessions.tenant(tenant.id) as session:
        session.add(
            EmbeddingModel(
                tenant_id=tenant.id, label="static-minilm-256/0", provider="static", state="active"
            )
        )
    found = (await look_at(tenant))["embeddings"]
    assert (found.well, "static-minilm-256/0" in found.found) == (False, True)


async def test_other_tokenisers_and_large_scopes_without_an_index(
    look_at: Any, runtime: Runtime, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remember(runtime, tenant.id, insights(30))

    async def indexed_by(tokenizer: str) -> Finding:
        async with runtime.sessions.tenant(tenant.id) as session:
            await session.execute(
                update(Memory).where(Memory.tenant_id == tenant.id).values(tokenizer=tokenizer)
            )
        return (await look_at(tenant))["tokeniser"]

    older = await indexed_by("hansei-terms/0")
    assert (older.well, "indexed again" in older.found) == (True, True)
    newer = await indexed_by("hansei-terms/99")
    assert (newer.well, "later release" in newer.found) == (False, True)
    assert (await indexed_by("hansei-terms/1")).well
    monkeypatch.setattr(index, "MANY", 25)
    monkeypatch.setattr(index, "FEW", 20)
    found = (await look_at(tenant))["indexes"]
    assert "without a vector index" in found.found


async def test_a_database_that_is_away_is_the_one_finding(database: Database) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://nobody:x@127.0.0.1:{taken.getsockname()[1]}/x"
        found = await asyncio.wait_for(doctor.look(settings(), Urls(url, url, None)), 60)
    assert [(one.name, one.well) for one in found] == [("connection", False)]
