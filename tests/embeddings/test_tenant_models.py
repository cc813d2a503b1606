"""Which embedder serves a tenant, and how a process knows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import event, select, update

from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.loaded import Embedders, Spec, open_default, open_spec
from apps.memory_api.embeddings.port import EmbedderFailed
from apps.memory_api.embeddings.static import StaticEmbedder
from apps.memory_api.embeddings.tables import EmbeddingModel
from apps.memory_api.embeddings.tenant import LEFT_ALONE, TenantModels
from apps.memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.rules.sources import files, name_of

STATIC = StaticEmbedder.model


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Process:
    """A process with its own clock and settings, and what it asked the database."""

    def __init__(self, runtime: Runtime, **settings: Any) -> None:
        self.runtime = runtime
        self.clock = Clock()
        self.settings = Settings(_env_file=None, **settings)  # type: ignore[call-arg]
        self.embedders = Embedders(self.settings, open_default(self.settings))
        self.models = TenantModels(runtime.sessions, self.embedders, clock=self.clock)
        self.asked = 0

    def count(self, *_: Any) -> None:
        self.asked += 1


@pytest.fixture
async def start(runtime: Runtime) -> AsyncIterator[Any]:
    started: list[Process] = []

    def make(**settings: Any) -> Process:
        process = Process(runtime, **settings)
        event.listen(runtime.sessions.engine.sync_engine, "begin", process.count)
        started.append(process)
        return process

    yield make
    for process in started:
        event.remove(runtime.sessions.engine.sync_engine, "begin", process.count)
        await process.embedders.aclose()


async def rows(runtime: Runtime, tenant: TestTenant) -> dict[str, EmbeddingModel]:
    async with runtime.sessions.tenant(tenant.id) as session:
        found = await session.scalars(
            select(EmbeddingModel).where(EmbeddingModel.tenant_id == tenant.id)
        )
        return {row.label: row for row in found}


async def add(runtime: Runtime, tenant: TestTenant, label: str, state: str, **more: Any) -> None:
    async with runtime.sessions.tenant(tenant.id) as session:
        session.add(EmbeddingModel(tenant_id=tenant.id, label=label, state=state, **more))


async def test_a_tenant_begins_with_what_the_settings_say_and_keeps_it(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    embedder = await start().models.of(tenant.id)
    assert (embedder.model, embedder.dimensions) == (STATIC, 256)
    (row,) = (await rows(runtime, tenant)).values()
    assert (row.label, row.provider, row.state) == (STATIC, "static", "active")
    other = start(
        embedding_provider="openai",
        embedding_model="m",
        embedding_dimensions=24,
        openai_base_url=stub.url,
    )
    assert other.embedders.first.label == "openai/m@24"
    assert (await other.models.of(tenant.id)).model == STATIC, "settings are for new tenants"
    assert list(await rows(runtime, tenant)) == [STATIC]


async def test_the_first_model_of_new_tenants_is_the_settings_one(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    process = start(
        embedding_provider="openai",
        embedding_model="m",
        embedding_dimensions=24,
        openai_base_url=stub.url,
    )
    embedder = await process.models.of(tenant.id)
    assert (await embedder.embed_query("one")).shape == (24,)
    row = (await rows(runtime, tenant))["openai/m@24"]
    assert (row.provider, row.name, row.dimensions, row.base_url) == ("openai", "m", 24, None)


async def test_the_database_is_asked_once_in_five_seconds(
    tenant: TestTenant, start: Any, make_tenant: Any
) -> None:
    process = start()
    await process.models.of(tenant.id)
    assert process.asked == 1
    for _ in range(20):
        await process.models.of(tenant.id)
    process.clock.now += 4.9
    await process.models.of(tenant.id)
    assert process.asked == 1
    process.clock.now += 0.2
    await process.models.of(tenant.id)
    assert process.asked == 2
    await process.models.of((await make_tenant()).id)
    await process.models.of(tenant.id)
    assert process.asked == 3, "each tenant is known by itself"
    process.models.forget(tenant.id)
    await process.models.of(tenant.id)
    assert process.asked == 4


async def test_a_change_is_noticed_within_five_seconds(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    process = start()
    assert (await process.models.of(tenant.id)).model == STATIC
    async with runtime.sessions.tenant(tenant.id) as session:
        await session.execute(
            update(EmbeddingModel)
            .where(EmbeddingModel.tenant_id == tenant.id)
            .values(state="retiring")
        )
        session.add(
            EmbeddingModel(
                tenant_id=tenant.id,
                label="openai/n@24",
                provider="openai",
                name="n",
                dimensions=24,
                base_url=stub.url,
                state="active",
            )
        )
    assert (await process.models.of(tenant.id)).model == STATIC
    process.clock.now += 5
    embedder = await process.models.of(tenant.id)
    assert embedder.model == "openai/n@24"
    beside = await embedder.embed_beside(["a text"])
    assert {label: made.shape for label, made in beside.items()} == {STATIC: (1, 256)}


async def test_a_model_being_filled_is_written_and_not_searched_and_may_fail(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    process = start()
    await process.models.of(tenant.id)
    new = {"provider": "openai", "name": "n", "dimensions": 24, "base_url": stub.url}
    await add(runtime, tenant, "openai/n@24", "filling", **new)
    process.clock.now += 5
    embedder = await process.models.of(tenant.id)
    assert embedder.model == STATIC
    assert (await embedder.embed_beside(["a"]))["openai/n@24"].shape == (1, 24)
    stub.faults.append((401, {}, {"error": {"message": "no"}}))
    assert await embedder.embed_beside(["a"]) == {}
    asked = len(stub.requests)
    process.clock.now += 6
    embedder = await process.models.of(tenant.id)
    assert await embedder.embed_beside(["a"]) == {}
    assert len(stub.requests) == asked, "left alone after it failed"
    process.clock.now += LEFT_ALONE
    embedder = await process.models.of(tenant.id)
    assert list(await embedder.embed_beside(["a"])) == ["openai/n@24"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"label": "openai/x@24", "provider": "openai", "name": "x", "dimensions": 24}, "API_KEY"),
        ({"label": "static-minilm-256/0", "provider": "static"}, "hansei reembed"),
        ({"label": "made/up", "provider": "made"}, "unknown embedding provider"),
    ],
)
async def test_a_model_this_process_cannot_load_is_an_error_that_says_why(
    runtime: Runtime, tenant: TestTenant, start: Any, row: dict[str, Any], said: str
) -> None:
    await add(runtime, tenant, state="active", **row)
    with pytest.raises(EmbedderFailed, match=said):
        await start().models.of(tenant.id)


async def test_each_embedder_is_opened_once(start: Any, stub: Any) -> None:
    process = start()
    spec = Spec("openai", "m", 24, stub.url)
    assert await process.embedders.open(spec) is await process.embedders.open(spec)
    assert await process.embedders.open(Spec("openai", "m", 12, stub.url)) is not (
        await process.embedders.open(spec)
    )


OWN, SHARED = SecretStr("own-key"), SecretStr("openai-key")


@pytest.mark.parametrize(
    ("settings", "base_url", "sent"),
    [
        ({"openai_api_key": SHARED, "openai_base_url": "HERE"}, None, "openai-key"),
        ({"openai_api_key": SHARED}, "HERE", "none"),
        ({"openai_api_key": SHARED, "embedding_base_url": "HERE"}, None, "none"),
        ({"openai_api_key": SHARED, "embedding_api_key": OWN}, "HERE", "own-key"),
        (
            {"openai_api_key": SHARED, "embedding_api_key": OWN, "embedding_base_url": "HERE"},
            None,
            "own-key",
        ),
        (
            {"embedding_api_key": OWN, "embedding_base_url": "http://elsewhere.invalid/v1"},
            "HERE",
            "none",
        ),
    ],
)
async def test_a_key_goes_to_no_other_address_than_its_own(
    stub: Any, settings: dict[str, Any], base_url: str | None, sent: str
) -> None:
    given = {name: stub.url if value == "HERE" else value for name, value in settings.items()}
    spec = Spec("openai", "m", 24, base_url and stub.url)
    embedder = open_spec(Settings(_env_file=None, **given), spec)  # type: ignore[call-arg]
    await embedder.embed_query("hello")
    await embedder.aclose()
    assert stub.headers[0]["authorization"] == f"Bearer {sent}"


def test_nobody_embeds_for_a_tenant_with_the_settings_embedder() -> None:
    """`runtime.embedder` is what new tenants begin with; a tenant's own is `embedder_of`."""
    about_the_settings = {"apps/memory_api/health.py", "apps/memory_api/commands/doctor.py"}
    used = {
        name_of(path)
        for path in files("apps", suffix=".py")
        if re.search(r"\bruntime\.embedder\b", path.read_text(encoding="utf-8"))
    }
    assert used == about_the_settings
