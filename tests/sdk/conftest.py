"""A stub service for each test, its clients, and an environment without credentials."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hansei import AsyncHansei, Hansei
from tests.sdk.stub_service import KEY, StubService


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home and a current directory without credentials."""
    for name in ("HANSEI_URL", "HANSEI_API_KEY", "HANSEI_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    return tmp_path


@pytest.fixture
def service() -> Iterator[StubService]:
    with StubService() as stub:
        yield stub


@pytest.fixture
def hansei(service: StubService) -> Iterator[Hansei]:
    with Hansei(service.url, KEY, timeout=5) as client:
        yield client


@pytest.fixture
async def async_hansei(service: StubService) -> AsyncIterator[AsyncHansei]:
    async with AsyncHansei(service.url, KEY, timeout=5) as client:
        yield client
