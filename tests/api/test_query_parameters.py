"""A parameter that nobody reads is refused: it would be a filter that does not filter."""

from __future__ import annotations

import json
import re

import pytest
from httpx2 import AsyncClient

from tests.support.paths import ROOT
from tests.support.problems import assert_names, assert_problem

DOCUMENT = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))["paths"]
ROUTES = [
    (method, re.sub(r"{\w+}", "x", path))
    for path, item in DOCUMENT.items()
    for method in item
    if not path.startswith("/health")
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_refuses_unknown_parameters(
    api: AsyncClient, method: str, path: str
) -> None:
    answer = await api.request(method, f"{path}?color=red")
    told = assert_names(answer, "color")
    assert "Unknown query parameter" in told["detail"]


async def test_error_lists_known_parameters(api: AsyncClient) -> None:
    told = assert_names(await api.get("/api/v1/traces?dataset=pay"), "dataset")
    assert "playbook, project, project_id, state, task_key" in told["detail"]


async def test_misplaced_dry_run_is_refused_and_changes_nothing(api: AsyncClient) -> None:
    deltas = {"deltas": [{"type": "ADD", "content": "Be brief."}], "dry_run": True}
    answer = await api.post("/api/v1/playbooks/pay/deltas", json=deltas)
    assert_names(answer, "dry_run")
    assert_problem(await api.get("/api/v1/playbooks/pay"), 404)


async def test_ndjson_with_misspelled_parameter_is_refused(api: AsyncClient) -> None:
    answer = await api.post(
        "/api/v1/traces?reflects=never",
        content=b"{}",
        headers={"content-type": "application/x-ndjson"},
    )
    assert_names(answer, "reflects")


async def test_very_long_parameter_name_is_not_echoed(api: AsyncClient) -> None:
    assert_problem(await api.get(f"/api/v1/traces?{'a' * 20_000}=1"), 422)
