"""Upkeep runs as the worker's role, which alone sees all tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from apps.memory_api.core.settings import Settings
from apps.memory_api.runtime import Runtime, open_runtime
from tests.conftest import Database


@pytest.fixture(scope="session")
async def worker_runtime(settings: Settings, database: Database) -> AsyncIterator[Runtime]:
    async with open_runtime(settings, database.url("hansei_worker")) as opened:
        yield opened
