"""A stub of the embedding provider, and the process that moves a tenant to its model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from memory_api.embeddings.registry import EmbedderSpec
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.support.reembedding import NEW_DIMENSIONS, NEW_MODEL, Mover, close_all, other_process
from tests.support.stub_provider import StubProvider


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture
async def closed_processes() -> AsyncIterator[None]:
    """Close what `other_process` opened."""
    yield
    await close_all()


@pytest.fixture
def spec(stub: StubProvider) -> EmbedderSpec:
    """The model that the tenant moves to."""
    return EmbedderSpec("openai", NEW_MODEL, NEW_DIMENSIONS, stub.openai_url)


@pytest.fixture
def mover(runtime: Runtime, tenant: TestTenant) -> Mover:
    return Mover(other_process(runtime, "mover"), tenant.id)
