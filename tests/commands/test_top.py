"""`hansei top` in a folder that another person prepared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from hansei.credentials import Credentials, save_credentials
from memory_api.commands import top
from memory_api.commands.scrape import Scrape

EVIL = "\x1b]0;pwn\x07[link=http://evil]x[/y]"


def test_text_of_a_service_does_not_control_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Scrape(
        {
            "hansei_runs_total": {(("kind", EVIL), ("result", "done")): 1.0},
            "hansei_llm_calls_total": {(("model", EVIL),): 1.0},
            "hansei_http_request_duration_seconds_count": {(("method", "GET"), ("route", EVIL)): 1},
        },
        {EVIL: EVIL},
    )
    monkeypatch.setattr(top, "Console", lambda **_: Console(force_terminal=True, width=200))
    monkeypatch.setattr(top, "scrape_all", lambda *_: metrics)
    monkeypatch.setattr(top, "_describe_improvement", lambda _: f"Unknown: {EVIL}")
    monkeypatch.setenv("HANSEI_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_x")
    top.run((), None, 1.0, True, None, False)
    shown = capsys.readouterr().out
    assert shown.count("]0;pwn") >= 5
    assert "\x1b]" not in shown


@pytest.mark.parametrize("is_chosen", [False, True])
def test_metrics_token_is_sent_to_no_url_of_a_cloned_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_chosen: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HANSEI_URL", "HANSEI_API_KEY", "HANSEI_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HANSEI_METRICS_TOKEN", "secret-of-the-metrics")
    monkeypatch.chdir(tmp_path)
    save_credentials(tmp_path / ".hansei", Credentials("http://127.0.0.1:9", "hsk_x"))
    tokens: list[str | None] = []

    def scrape(_urls: Sequence[str], token: str | None) -> Scrape:
        tokens.append(token)
        return Scrape({"hansei_database_up": {(): 1.0}})

    monkeypatch.setattr(top, "scrape_all", scrape)
    monkeypatch.setattr(top, "_describe_improvement", lambda _: "Unknown.")
    top.run((), None, 1.0, True, tmp_path / ".hansei" if is_chosen else None, False)
    assert tokens == ["secret-of-the-metrics" if is_chosen else None]


@pytest.mark.parametrize("token", [None, "secret-of-the-metrics"])
def test_worker_is_shown_with_the_variables_that_the_demo_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    """The file may come with a cloned repository, so its worker does not get the token."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HANSEI_DATA_DIR", raising=False)
    monkeypatch.delenv("HANSEI_WORKER_METRICS_PORT", raising=False)
    monkeypatch.setenv("HANSEI_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_of_the_demo")
    if token is not None:
        monkeypatch.setenv("HANSEI_METRICS_TOKEN", token)
    monkeypatch.chdir(tmp_path)
    worker = "http://127.0.0.1:10"
    stored = Credentials("http://127.0.0.1:9", "hsk_x", worker_metrics_url=worker)
    save_credentials(tmp_path / ".hansei", stored)
    asked: list[str] = []

    def scrape(urls: Sequence[str], _token: str | None) -> Scrape:
        asked.extend(urls)
        return Scrape({"hansei_database_up": {(): 1.0}})

    monkeypatch.setattr(top, "scrape_all", scrape)
    monkeypatch.setattr(top, "_describe_improvement", lambda _: "Unknown.")
    top.run((), None, 1.0, True, None, False)
    assert (f"{worker}/metrics" in asked) == (token is None)
    monkeypatch.setenv("HANSEI_URL", "http://127.0.0.1:11")
    asked.clear()
    top.run((), None, 1.0, True, None, False)
    assert asked == ["http://127.0.0.1:11/metrics"]


def test_stopped_service_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HANSEI_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HANSEI_API_KEY", "hsk_x")
    with pytest.raises(SystemExit):
        top.run((), None, 1.0, True, None, False)
    error = capsys.readouterr().err
    assert "http://127.0.0.1:9/metrics: cannot be reached. Check that `hansei up`" in error
