"""Bodies that are cheap to send and were expensive to refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.api import problems
from memory_api.api.bodies import MAX_BODY
from memory_api.core.pagination import Cursor
from tests.support.api_calls import event, send_raw
from tests.support.problems import assert_problem


def many_fields(count: int) -> bytes:
    return json.dumps({f"k{n}": 0 for n in range(count)}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "path", ["/api/v1/search", "/api/v1/memories", "/api/v1/playbooks/p/render"]
)
async def test_many_unknown_fields_make_one_error(api: AsyncClient, path: str) -> None:
    body = many_fields(50_000)
    assert len(body) < MAX_BODY
    problem = assert_problem(await send_raw(api, path, body), 422, "invalid")
    # Ours, before validation: pydantic needed 0.6 s and 120 MB for the errors.
    assert "50,000 fields" in problem["detail"]
    assert len(problem["errors"]) == 1


@pytest.mark.parametrize("path", ["/api/v1/search", "/api/v1/playbooks/p/search"])
async def test_search_refuses_a_body_of_a_trace(api: AsyncClient, path: str) -> None:
    assert_problem(await send_raw(api, path, many_fields(130_000)), 413, "too_large")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/playbooks/p/deltas", {"deltas": [{f"k{n}": 0 for n in range(2_000)}]}),
        ("/api/v1/playbooks/p/deltas", {"deltas": [{"type": "ADD"}, {}] + [{"x": 0}] * 900}),
        ("/api/v1/playbooks/p/deltas", {"deltas": [{"type": "ADD", "tags": [0] * 2_000}]}),
        ("/api/v1/playbooks/p/deltas", {"deltas": [{"type": "ADD", "keywords": [0] * 2_000}]}),
        ("/api/v1/playbooks/p/deltas", {"deltas": [{"type": "MERGE", "source_ids": [0] * 2_000}]}),
        ("/api/v1/traces", {"outcome": "success", "events": [event("x")], "tools": [0] * 2_000}),
        ("/api/v1/reflections/generate", {"events": [event("x")], "tools": [{}] * 2_000}),
        ("/api/v1/retention", {"items": [{f"k{n}": 0 for n in range(2_000)}]}),
    ],
)
async def test_many_invalid_parts_make_few_errors(
    api: AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    """Each error takes 1 KB: 700,000 items of one list took 15 s and 900 MB."""
    counts: list[int] = []
    describe = problems.describe_field_error

    def count(*arguments: Any) -> Any:
        counts.append(1)
        return describe(*arguments)

    monkeypatch.setattr(problems, "describe_field_error", count)
    method = "PUT" if path.endswith("retention") else "POST"
    assert_problem(await send_raw(api, path, json.dumps(body).encode(), method), 422, "invalid")
    assert len(counts) <= 5


async def test_few_unknown_fields_are_named(api: AsyncClient) -> None:
    problem = assert_problem(await send_raw(api, "/api/v1/search", many_fields(3)), 422, "invalid")
    assert {"k0", "k1", "k2"} <= {error["field"] for error in problem["errors"]}


async def test_bullet_of_a_playbook_with_a_japanese_name(api: AsyncClient) -> None:
    answer = await api.post(
        "/api/v1/playbooks/日本/bullets", json={"section": "others", "content": "Ask first."}
    )
    assert answer.status_code == 201
    assert (await api.get(answer.headers["Location"])).json()["content"] == "Ask first."


@pytest.mark.parametrize(
    "time_of_year_1", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
)
async def test_cursor_outside_of_all_years(api: AsyncClient, time_of_year_1: str) -> None:
    cursor = Cursor("traces", (time_of_year_1, "0" * 32)).encode()
    assert_problem(await api.get("/api/v1/traces", params={"cursor": cursor}), 422, "invalid")


@pytest.mark.parametrize(
    "body",
    ['{"query_text": "a", "query_text": "b"}', '{"query_text": "a", "kind": {"x": 1, "x": 1}}'],
)
async def test_repeated_name_is_refused(api: AsyncClient, body: str) -> None:
    problem = assert_problem(
        await send_raw(api, "/api/v1/search", body.encode()), 400, "malformed_json"
    )
    assert "twice" in problem["detail"]


async def test_repeated_name_in_a_playbook_is_refused(api: AsyncClient) -> None:
    body = '{"bullets": [], "metadata": {}, "bullets": []}'
    problem = assert_problem(await api.put("/api/v1/playbooks/p", content=body), 422, "invalid")
    assert "'bullets' twice" in problem["detail"]


async def test_path_with_a_slash_at_its_end_is_not_redirected(api: AsyncClient) -> None:
    answer = await api.get("/api/v1/traces/", headers={"Host": "evil.example"})
    assert_problem(answer, 404)
    assert "evil.example" not in f"{answer.headers}{answer.text}"


async def test_wrong_method_is_answered_with_all_methods_of_the_path(api: AsyncClient) -> None:
    answer = await api.request("PUT", "/api/v1/traces")
    assert_problem(answer, 405)
    assert answer.headers["Allow"] == "GET, POST"
