"""A stub provider per test, and both providers of ours that talk to it through the real SDKs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from memory_api.llm.port import LLM
from memory_api.llm.registry import open_llm
from tests.support.stub_provider import StubProvider
from tests.support.stub_provider.guard import forbid_real_providers

forbid_real_providers()


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    """A server of its own: a request that an earlier test gave up must not take a queued reply."""
    with StubProvider() as running:
        yield running


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
async def llm(request: pytest.FixtureRequest, stub: StubProvider) -> AsyncIterator[LLM]:
    """Each test runs once per SDK."""
    url = stub.anthropic_url if request.param == "anthropic" else stub.openai_url
    opened = open_llm(request.param, model="some-model", api_key="test", base_url=url)
    assert opened is not None
    yield opened
    await opened.aclose()


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged, whatever level the process is set to."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    with capture_logs() as entries:
        yield entries
    structlog.configure(**before)
