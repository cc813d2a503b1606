"""A recorder for the stub service, with its spool in the test's folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansei import _retry
from hansei.recording import delivery
from hansei.recording import recorder as recorder_module
from hansei.recording.recorder import Recorder
from tests.sdk.stub_service import KEY, StubService


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Short pauses: the tests wait for `flush`, never for a time."""
    monkeypatch.setattr(recorder_module, "WRITE_INTERVAL_SECONDS", 0.001)
    caplog.set_level(logging.WARNING, logger="hansei")
    monkeypatch.setattr(_retry, "INITIAL_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(delivery, "INITIAL_PAUSE_SECONDS", 0.001)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def recorder(service: StubService, spool: Path) -> Iterator[Recorder]:
    opened = Recorder(service.url, KEY, spool_dir=spool)
    yield opened
    opened.close(0)
