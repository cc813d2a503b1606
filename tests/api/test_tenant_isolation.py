"""Two tenants with the same data: nothing of one shows in the other, in no answer of any route."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient, Response

from tests.support.api_calls import NDJSON, count, event, ndjson, trace
from tests.support.problems import assert_names, assert_problem, without_instance

UUIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Caller:
    """A tenant's administrator, who remembers every id it was ever shown."""

    def __init__(self, http: AsyncClient, tenant: Any) -> None:
        self.http = http
        self.tenant = tenant
        self.seen: set[str] = set()

    async def __call__(self, method: str, path: str, **more: Any) -> Response:
        headers = self.tenant.auth() | more.pop("headers", {})
        answer = await self.http.request(method, path, headers=headers, **more)
        self.seen |= set(UUIDS.findall(answer.text))
        return answer


@pytest.fixture
async def two(http: AsyncClient, make_tenant, drain) -> tuple[Caller, Caller]:
    """Two tenants that were sent the same, by every road."""
    callers = Caller(http, await make_tenant()), Caller(http, await make_tenant())
    for call in callers:
        assert (await call("POST", "/api/v1/traces", json=trace(external_id="a"))).is_success
        lines = ndjson(trace(external_id=f"n{n}", task_key="t") for n in range(3))
        assert (await call("POST", "/api/v1/traces", content=lines, headers=NDJSON)).is_success
        await call("POST", "/api/v1/reflections/generate", json=trace(external_id="g"))
        await call("POST", "/api/v1/memories", json={"content": "Same words", "tags": ["t"]})
        await call("POST", "/api/v1/reflections", json={"reflection_text": "Brought words"})
        await drain(call.tenant.id)
    return callers


READS = (
    "/api/v1/traces",
    "/api/v1/traces?task_key=t",
    "/api/v1/memories",
    "/api/v1/memories?tag=t",
    "/api/v1/memories?kind=episode",
    "/api/v1/runs",
    "/api/v1/keys",
    "/api/v1/tenants",
)
ASKS = (
    ("/api/v1/search", {"query_text": "Same words", "top_k": 1000, "explain": True}),
    ("/api/v1/search", {"query_text": "", "top_k": 1000}),
    ("/api/v1/search", {"query_text": "words", "tags": ["t"], "fusion": "rrf"}),
    ("/api/v1/reflections/query", {"query_text": "plan", "k": 1000, "min_importance": 0}),
    ("/api/v1/reflections/query", {"k": 1000, "min_importance": 0}),
)


async def answers(call: Caller) -> list[Any]:
    found = [(await call("GET", path)).json() for path in READS]
    found += [(await call("POST", path, json=body)).json() for path, body in ASKS]
    for item in (await call("GET", "/api/v1/memories")).json()["items"]:
        for tail in ("", "/revisions", "/links"):
            found.append((await call("GET", f"/api/v1/memories/{item['id']}{tail}")).json())
    for item in (await call("GET", "/api/v1/traces")).json()["items"]:
        found.append((await call("GET", f"/api/v1/traces/{item['id']}")).json())
    return found


def without_identity(value: Any) -> Any:
    """The same with ids and times taken out, and lists sorted: ids break ties, and are random."""
    if isinstance(value, dict):
        return {
            key: without_identity(item)
            for key, item in value.items()
            if not key.endswith(("_at", "slug"))
        }
    if isinstance(value, list):
        return sorted((without_identity(item) for item in value), key=repr)
    return "id" if isinstance(value, str) and UUIDS.search(value) else value


async def test_no_id_of_one_tenant_is_shown_to_the_other(two: tuple[Caller, Caller]) -> None:
    one, other = two
    await answers(one)
    await answers(other)
    assert len(one.seen) > 20
    assert not one.seen & other.seen


async def test_each_tenant_sees_the_same_as_alone(two, http, make_tenant, runtime) -> None:
    """Counts, scores and ranks too: another tenant's rows are in no statistic."""
    one, other = two
    counted = await count(runtime, one.tenant.id), await count(runtime, other.tenant.id)
    assert counted[0] == counted[1]
    assert without_identity(await answers(one)) == without_identity(await answers(other))
    empty = Caller(http, await make_tenant())
    for path in READS[:-2]:
        assert (await empty("GET", path)).json() == {"items": [], "next_cursor": None}
    for path, body in ASKS:
        found = (await empty("POST", path, json=body)).json()
        assert all(value == [] for value in found.values()), found


async def test_rows_of_other_tenant_are_404(two: tuple[Caller, Caller], runtime) -> None:
    one, other = two
    trace_id = (await one("GET", "/api/v1/traces")).json()["items"][0]["id"]
    memory_id = (await one("GET", "/api/v1/memories")).json()["items"][0]["id"]
    run_id = (await one("GET", "/api/v1/runs")).json()["items"][0]["id"]
    key_id = (await one("GET", "/api/v1/keys")).json()["items"][0]["id"]
    before = await count(runtime, one.tenant.id)
    for method, path, body in (
        ("GET", f"/api/v1/traces/{trace_id}", None),
        ("POST", f"/api/v1/traces/{trace_id}/events", {"events": [event()]}),
        ("POST", f"/api/v1/traces/{trace_id}/outcome", {"outcome": "failure"}),
        ("POST", f"/api/v1/traces/{trace_id}/close", {}),
        ("GET", f"/api/v1/memories/{memory_id}", None),
        ("GET", f"/api/v1/memories/{memory_id}/revisions", None),
        ("GET", f"/api/v1/memories/{memory_id}/links", None),
        ("PATCH", f"/api/v1/memories/{memory_id}", {"content": "mine now"}),
        ("DELETE", f"/api/v1/memories/{memory_id}", None),
        ("GET", f"/api/v1/runs/{run_id}", None),
        ("POST", f"/api/v1/runs/{run_id}/retry", None),
        ("DELETE", f"/api/v1/keys/{key_id}", None),
    ):
        theirs = await other(method, path, json=body)
        nobodys = await other(method, UUIDS.sub(str(UUID(int=7)), path), json=body)
        assert_problem(theirs, 404, "not_found")
        assert without_instance(theirs) == without_instance(nobodys)
        assert theirs.headers.keys() == nobodys.headers.keys()
    assert await count(runtime, one.tenant.id) == before
    listed = await other("GET", f"/api/v1/runs?trace_id={trace_id}")
    assert listed.json()["items"] == []
    listed = await other("GET", f"/api/v1/memories?trace_id={trace_id}")
    assert listed.json()["items"] == []


async def test_ids_of_other_tenant_reveal_nothing(two: tuple[Caller, Caller]) -> None:
    """Another tenant's IDs are answered like IDs that nobody has."""
    one, other = two
    trace_id = (await one("GET", "/api/v1/traces")).json()["items"][0]["id"]
    memory_id = (await one("GET", "/api/v1/memories")).json()["items"][0]["id"]
    for path in ("/api/v1/reflections/generate", "/api/v1/traces"):
        theirs, nobodys = [
            await other("POST", path, json=trace(related_memory_ids=[str(related)]))
            for related in (memory_id, UUID(int=1))
        ]
        assert_problem(theirs, 422, "invalid")
        (error,), (other_error,) = theirs.json()["errors"], nobodys.json()["errors"]
        assert error["field"] == "related_memory_ids"
        message = error["message"].replace(memory_id, str(UUID(int=1)))
        assert {**error, "message": message} == other_error
    stored = await other("POST", "/api/v1/traces", json=trace(parent_id=trace_id))
    assert stored.status_code == 201
    made = await other("POST", "/api/v1/memories", json={"content": "x", "trace_id": trace_id})
    assert made.status_code == 201
    links = (await one("GET", f"/api/v1/memories/{memory_id}/links")).json()["items"]
    assert "related_to" not in [link["relation"] for link in links]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/traces", trace()),
        ("/api/v1/memories", {"content": "x"}),
        ("/api/v1/reflections", {"reflection_text": "x"}),
        ("/api/v1/reflections/generate", trace()),
        ("/api/v1/reflections/query", {}),
        ("/api/v1/search", {"query_text": "x"}),
        ("/api/v1/trajectories/reflect", {"trajectory": {"query": "q", "generated_answer": "a"}}),
        ("/api/v1/transcripts/reflect", {"messages": [{"role": "user", "content": "m"}]}),
        ("/api/v1/keys", {}),
    ],
)
async def test_tenant_id_in_body_must_match_key(http, make_tenant, path, body) -> None:
    mine, other = await make_tenant(), await make_tenant()
    for name in (mine.slug, str(mine.id), str(mine.id).upper(), mine.id.hex):
        answer = await http.post(path, json=body | {"tenant_id": name}, headers=mine.auth())
        assert answer.is_success, answer.text
    refused = [
        await http.post(path, json=body | {"tenant_id": name}, headers=mine.auth())
        for name in (other.slug, str(other.id), "nobody", "00000000-0000-0000-0000-000000000001")
    ]
    for answer in refused:
        assert_names(answer, "tenant_id", 403)
        assert without_instance(answer) == without_instance(refused[0])
    answer = await http.post(path, json=body | {"tenant_id": "no/name"}, headers=mine.auth())
    assert_names(answer, "tenant_id")


async def test_guessable_ids_of_other_tenant_reveal_nothing(http, make_tenant) -> None:
    mine, other = await make_tenant(), await make_tenant()
    made = await http.post("/api/v1/memories", json={"content": "x"}, headers=mine.auth())
    opened = await http.post("/api/v1/traces", json=trace(state="open"), headers=mine.auth())
    for method, path, body in (
        ("PATCH", made.headers["location"], {"content": "y"}),
        ("POST", opened.headers["location"] + "/events", {"events": [event()]}),
        ("POST", opened.headers["location"] + "/outcome", {"outcome": "failure"}),
        ("POST", opened.headers["location"] + "/close", {}),
    ):
        answer = await http.request(
            method, path, json=body | {"tenant_id": other.slug}, headers=mine.auth()
        )
        assert_names(answer, "tenant_id", 403)
        answer = await http.request(
            method, path, json=body | {"tenant_id": mine.slug}, headers=mine.auth()
        )
        assert answer.is_success, answer.text
