"""`bench check` fails for a regression of more than 15 % of any committed ratio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import check

RATIOS = json.loads(check.COMMITTED.read_text(encoding="utf8"))


@contextmanager
def no_server() -> Iterator[None]:
    yield


def exit_status(monkeypatch: pytest.MonkeyPatch, ratios: dict[str, float]) -> Any:
    async def measure(_server: object) -> dict[str, float]:
        return ratios

    monkeypatch.setattr(check, "measured_server", no_server)
    monkeypatch.setattr(check, "measure", measure)
    with pytest.raises(SystemExit) as caught:
        check.main(write=False)
    return caught.value.code


@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize(("growth", "status"), [(1.14, 0), (1.16, 1)])
def test_any_ratio_may_grow_by_15_percent(
    monkeypatch: pytest.MonkeyPatch, name: str, growth: float, status: int
) -> None:
    ratios = RATIOS | {name: RATIOS[name] * growth, "measured since": 1.0}
    assert exit_status(monkeypatch, ratios) == status


def test_ratio_that_is_no_longer_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        exit_status(monkeypatch, {})


def test_written_ratios_are_compared_next_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def measure(_server: object) -> dict[str, float]:
        return {"search": 2.0}

    monkeypatch.setattr(check, "COMMITTED", tmp_path / "ratios.json")
    monkeypatch.setattr(check, "measured_server", no_server)
    monkeypatch.setattr(check, "measure", measure)
    with pytest.raises(SystemExit):
        check.main(write=True)
    assert exit_status(monkeypatch, {"search": 2.2}) == 0
    assert exit_status(monkeypatch, {"search": 2.4}) == 1
