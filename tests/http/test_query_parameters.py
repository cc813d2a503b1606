"""A parameter that nobody reads is refused: it would be a filter that does not filter."""

from __future__ import annotations

import re

import pytest
from httpx2 import AsyncClient

from apps.memory_api.core.settings import Settings
from apps.memory_api.main import create_app
from tests.http.problems import assert_names, assert_problem

DOCUMENT = create_app(Settings.load(), "postgresql://nobody@localhost/none").openapi()["paths"]
ROUTES = [
    (method, re.sub(r"{\w+}", "x", path))
    for path, item in DOCUMENT.items()
    for method in item
    if not path.startswith("/health")
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_no_route_takes_what_it_does_not_know(
    api: AsyncClient, method: str, path: str
) -> None:
    answer = await api.request(method, f"{path}?colour=red")
    told = assert_names(answer, "colour")
    assert "There is no such parameter" in told["detail"]


async def test_those_that_there_are_are_named(api: AsyncClient) -> None:
    told = assert_names(await api.get("/api/v1/traces?dataset=pay"), "dataset")
    assert "playbook, project, project_id, state, task_key" in told["detail"]


async def test_a_dry_run_in_the_wrong_place_is_not_the_real_thing(api: AsyncClient) -> None:
    deltas = {"deltas": [{"type": "ADD", "content": "Be brief."}]}
    answer = await api.post("/api/v1/playbooks/pay/deltas?apply=false", json=deltas)
    assert_names(answer, "apply")
    assert_problem(await api.get("/api/v1/playbooks/pay"), 404)


async def test_many_lines_are_not_sent_with_a_misspelt_parameter(api: AsyncClient) -> None:
    answer = await api.post(
        "/api/v1/traces?reflects=never",
        content=b"{}",
        headers={"content-type": "application/x-ndjson"},
    )
    assert_names(answer, "reflects")


async def test_a_very_long_name_is_not_said_back(api: AsyncClient) -> None:
    assert_problem(await api.get(f"/api/v1/traces?{'a' * 20_000}=1"), 422)
