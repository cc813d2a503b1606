"""The examples of docs/reflector.md work as printed."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import httpx2
import pytest

from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "reflector.md"


def blocks(language: str) -> list[str]:
    text = DOCS.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


async def test_documented_requests_work(api: httpx2.AsyncClient) -> None:
    trajectory, transcript = map(json.loads, blocks("json"))
    answer = await api.post("/api/v1/trajectories/reflect", json=trajectory)
    assert answer.status_code == 200, answer.text
    assert answer.json()["iteration_count"] == 1
    answer = await api.post("/api/v1/transcripts/reflect", json=transcript)
    assert answer.status_code == 200, answer.text
    assert answer.json()["cited_ids"] == ["ctx-00002"]


def test_documented_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, {})
    assert printed.getvalue() == "1 []\n"
