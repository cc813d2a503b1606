"""Which embedder serves a tenant, and how a process knows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import event, select, update

from memory_api.core.settings import Settings
from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.embeddings.registry import (
    EmbedderCache,
    EmbedderSpec,
    open_default_embedder,
    open_embedder_for,
)
from memory_api.embeddings.tables import EmbeddingModelRow
from memory_api.embeddings.tenant_models import FAILURE_PAUSE_SECONDS, TenantEmbeddingModels
from memory_api.runtime import Runtime
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
        self.embedder_cache = EmbedderCache(self.settings, open_default_embedder(self.settings))
        self.models = TenantEmbeddingModels(runtime.sessions, self.embedder_cache, clock=self.clock)
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
        await process.embedder_cache.aclose()


async def rows(runtime: Runtime, tenant: TestTenant) -> dict[str, EmbeddingModelRow]:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        found = await session.scalars(
            select(EmbeddingModelRow).where(EmbeddingModelRow.tenant_id == tenant.id)
        )
        return {row.label: row for row in found}


async def add(runtime: Runtime, tenant: TestTenant, label: str, state: str, **more: Any) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        session.add(EmbeddingModelRow(tenant_id=tenant.id, label=label, state=state, **more))


async def test_tenant_keeps_model_of_first_settings(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    embedder = await start().models.get_embedder(tenant.id)
    assert (embedder.model, embedder.dimensions) == (STATIC, 256)
    (row,) = (await rows(runtime, tenant)).values()
    assert (row.label, row.provider, row.state) == (STATIC, "static", "active")
    other = start(
        embedding_provider="openai",
        embedding_model="m",
        embedding_dimensions=24,
        openai_base_url=stub.url,
    )
    assert other.embedder_cache.new_default_row().label == "openai/m@24"
    assert (await other.models.get_embedder(tenant.id)).model == STATIC, (
        "settings are for new tenants"
    )
    assert list(await rows(runtime, tenant)) == [STATIC]


async def test_new_tenant_uses_configured_model(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    process = start(
        embedding_provider="openai",
        embedding_model="m",
        embedding_dimensions=24,
        openai_base_url=stub.url,
    )
    embedder = await process.models.get_embedder(tenant.id)
    assert (await embedder.embed_query("one")).shape == (24,)
    row = (await rows(runtime, tenant))["openai/m@24"]
    assert (row.provider, row.name, row.dimensions, row.base_url) == ("openai", "m", 24, None)


async def test_models_are_cached_for_five_seconds(
    tenant: TestTenant, start: Any, make_tenant: Any
) -> None:
    process = start()
    await process.models.get_embedder(tenant.id)
    assert process.asked == 1
    for _ in range(20):
        await process.models.get_embedder(tenant.id)
    process.clock.now += 4.9
    await process.models.get_embedder(tenant.id)
    assert process.asked == 1
    process.clock.now += 0.2
    await process.models.get_embedder(tenant.id)
    assert process.asked == 2
    await process.models.get_embedder((await make_tenant()).id)
    await process.models.get_embedder(tenant.id)
    assert process.asked == 3, "each tenant is known by itself"
    process.models.invalidate(tenant.id)
    await process.models.get_embedder(tenant.id)
    assert process.asked == 4


async def test_change_is_noticed_within_five_seconds(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    process = start()
    assert (await process.models.get_embedder(tenant.id)).model == STATIC
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            update(EmbeddingModelRow)
            .where(EmbeddingModelRow.tenant_id == tenant.id)
            .values(state="retiring")
        )
        session.add(
            EmbeddingModelRow(
                tenant_id=tenant.id,
                label="openai/n@24",
                provider="openai",
                name="n",
                dimensions=24,
                base_url=stub.url,
                state="active",
            )
        )
    assert (await process.models.get_embedder(tenant.id)).model == STATIC
    process.clock.now += 5
    embedder = await process.models.get_embedder(tenant.id)
    assert embedder.model == "openai/n@24"
    beside = await embedder.embed_with_secondary_models(["a text"])
    assert {label: made.shape for label, made in beside.items()} == {STATIC: (1, 256)}


async def test_model_being_filled_is_written_but_not_searched(
    runtime: Runtime, tenant: TestTenant, start: Any, stub: Any
) -> None:
    process = start()
    await process.models.get_embedder(tenant.id)
    new = {"provider": "openai", "name": "n", "dimensions": 24, "base_url": stub.url}
    await add(runtime, tenant, "openai/n@24", "filling", **new)
    process.clock.now += 5
    embedder = await process.models.get_embedder(tenant.id)
    assert embedder.model == STATIC
    assert (await embedder.embed_with_secondary_models(["a"]))["openai/n@24"].shape == (1, 24)
    stub.faults.append((401, {}, {"error": {"message": "no"}}))
    assert await embedder.embed_with_secondary_models(["a"]) == {}
    asked = len(stub.requests)
    process.clock.now += 6
    embedder = await process.models.get_embedder(tenant.id)
    assert await embedder.embed_with_secondary_models(["a"]) == {}
    assert len(stub.requests) == asked, "left alone after it failed"
    process.clock.now += FAILURE_PAUSE_SECONDS
    embedder = await process.models.get_embedder(tenant.id)
    assert list(await embedder.embed_with_secondary_models(["a"])) == ["openai/n@24"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"label": "openai/x@24", "provider": "openai", "name": "x", "dimensions": 24}, "API_KEY"),
        ({"label": "static-minilm-256/0", "provider": "static"}, "hansei reembed"),
        ({"label": "made/up", "provider": "made"}, "Unknown embedding provider"),
    ],
)
async def test_unloadable_model_error_gives_reason(
    runtime: Runtime, tenant: TestTenant, start: Any, row: dict[str, Any], said: str
) -> None:
    await add(runtime, tenant, state="active", **row)
    with pytest.raises(EmbedderUnavailable, match=said):
        await start().models.get_embedder(tenant.id)


async def test_each_embedder_is_opened_once(start: Any, stub: Any) -> None:
    process = start()
    spec = EmbedderSpec("openai", "m", 24, stub.url)
    assert await process.embedder_cache.open(spec) is await process.embedder_cache.open(spec)
    assert await process.embedder_cache.open(EmbedderSpec("openai", "m", 12, stub.url)) is not (
        await process.embedder_cache.open(spec)
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
async def test_api_key_is_sent_only_to_its_own_base_url(
    stub: Any, settings: dict[str, Any], base_url: str | None, sent: str
) -> None:
    given = {name: stub.url if value == "HERE" else value for name, value in settings.items()}
    spec = EmbedderSpec("openai", "m", 24, base_url and stub.url)
    embedder = open_embedder_for(Settings(_env_file=None, **given), spec)  # type: ignore[call-arg]
    await embedder.embed_query("hello")
    await embedder.aclose()
    assert stub.headers[0]["authorization"] == f"Bearer {sent}"


def test_tenant_is_never_embedded_with_settings_embedder() -> None:
    """`runtime.default_embedder` is what new tenants begin with; a tenant's own is
    `get_tenant_embedder`.
    """
    about_the_settings = {"apps/memory_api/api/health.py", "apps/memory_api/commands/doctor.py"}
    used = {
        name_of(path)
        for path in files("apps", suffix=".py")
        if re.search(r"\bruntime\.default_embedder\b", path.read_text(encoding="utf-8"))
    }
    assert used == about_the_settings
