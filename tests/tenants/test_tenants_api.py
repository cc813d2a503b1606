"""Tenants, keys and runs over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4, uuid5

import pytest
from httpx2 import AsyncClient, Response
from sqlalchemy import text

from memory_api.core.errors import InvalidRequest
from memory_api.core.ids import TENANT_NAMESPACE
from memory_api.runs import lifecycle
from memory_api.runtime import Runtime
from tests.support.api_calls import new_key, new_trace, trace
from tests.support.problems import assert_names, assert_problem, without_instance


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def new_tenant(http: AsyncClient, tenant, name: object) -> Response:
    body = {"name": name}
    return await http.post("/api/v1/tenants", json=body, headers=tenant.auth("operator"))


async def test_operator_creates_tenants(http: AsyncClient, tenant) -> None:
    slug = f"acme-{uuid4()}"
    answer = await new_tenant(http, tenant, slug)
    assert answer.status_code == 201
    made = answer.json()
    assert UUID(made["id"]) == uuid5(TENANT_NAMESPACE, slug)
    assert (made["slug"], made["status"]) == (slug, "active")
    listed = (await http.get("/api/v1/tenants", headers=bearer(made["key"]))).json()["items"]
    assert [item["id"] for item in listed] == [made["id"]]
    again = await new_tenant(http, tenant, slug)
    assert again.status_code == 200
    assert again.json() == made | {"key": None}


async def test_tenant_may_be_named_by_a_uuid(http: AsyncClient, tenant) -> None:
    name = str(uuid4())
    answer = await new_tenant(http, tenant, name)
    assert answer.json()["id"] == name


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a/b", "ä", "x" * 129, "a\0b", None, 5, []])
async def test_invalid_name_is_refused(http: AsyncClient, tenant, name) -> None:
    answer = await new_tenant(http, tenant, name)
    assert_names(answer, "name")


async def test_key_works_until_it_is_revoked(api: AsyncClient, http: AsyncClient) -> None:
    made = await api.post("/api/v1/keys", json={"name": "ci", "scopes": ["read"]})
    assert made.status_code == 201
    key = made.json()
    assert (await http.get("/api/v1/traces", headers=bearer(key["key"]))).status_code == 200
    listed = {k["id"]: k for k in (await api.get("/api/v1/keys")).json()["items"]}
    assert listed[key["id"]]["name"] == "ci"
    assert listed[key["id"]]["last_used_at"]
    assert key["key"] not in (await api.get("/api/v1/keys")).text
    assert key["key"].split("_", 2)[2] not in (await api.get("/api/v1/keys")).text
    assert (await api.delete(f"/api/v1/keys/{key['id']}")).status_code == 204
    answer = await http.get("/api/v1/traces", headers=bearer(key["key"]))
    assert_problem(answer, 401, "unauthorized")
    assert (await api.delete(f"/api/v1/keys/{key['id']}")).status_code == 204
    listed = {k["id"]: k for k in (await api.get("/api/v1/keys")).json()["items"]}
    assert listed[key["id"]]["revoked_at"]
    assert_problem(await api.delete(f"/api/v1/keys/{uuid4()}"), 404, "not_found")


async def test_expired_key_is_like_no_key(api: AsyncClient, http: AsyncClient) -> None:
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    expired = await new_key(api, "admin", expires_at=past)
    later = await new_key(api, "admin", expires_at="2999-01-01T00:00:00Z")
    answer = await http.get("/api/v1/traces", headers=expired)
    without_key = await http.get("/api/v1/traces")
    assert without_instance(answer) == without_instance(without_key)
    assert answer.status_code == 401
    assert (await http.get("/api/v1/traces", headers=later)).status_code == 200


async def test_keys_of_closed_tenant_are_like_no_key(http, make_tenant, owner) -> None:
    closed = await make_tenant()
    async with owner.for_tenant(closed.id) as session:
        change = text("update tenants set status = 'suspended' where id = :id")
        await session.execute(change, {"id": closed.id})
    answer = await http.get("/api/v1/traces", headers=closed.auth())
    assert_problem(answer, 401, "unauthorized")


async def test_scopes_include_lower_scopes(api: AsyncClient, http: AsyncClient) -> None:
    for scopes, reads, writes, keys in (
        (["read"], 200, 403, 403),
        (["write"], 200, 201, 403),
        (["admin"], 200, 201, 200),
        (["read", "write"], 200, 201, 403),
    ):
        key = await new_key(api, *scopes)
        assert (await http.get("/api/v1/traces", headers=key)).status_code == reads
        answer = await http.post("/api/v1/traces", json=trace(), headers=key)
        assert answer.status_code == writes
        assert (await http.get("/api/v1/keys", headers=key)).status_code == keys


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes.0"),
        ({"scopes": "read"}, "scopes"),
        ({"scopes": ["read"] * 4}, "scopes"),
        ({"name": "x" * 129}, "name"),
        ({"project_id": "x" * 129}, "project_id"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"key": "mine"}, "key"),
    ],
)
async def test_invalid_key_request_is_reported(api: AsyncClient, body, field: str) -> None:
    assert_names(await api.post("/api/v1/keys", json=body), field)


async def test_operator_keys_cannot_be_created_over_http(api: AsyncClient) -> None:
    answer = await api.post("/api/v1/keys", json={"scopes": ["operator"]})
    assert_names(answer, "scopes", 403)


async def test_project_admin_is_limited_to_project(api: AsyncClient, http) -> None:
    await new_key(api, "read", project_id="other", name="of other")
    bound = await new_key(api, "admin", project_id="mine", name="of mine")
    keys = (await http.get("/api/v1/keys", headers=bound)).json()["items"]
    assert [key["name"] for key in keys] == ["of mine"]
    every = (await api.get("/api/v1/keys")).json()["items"]
    for key in every:
        if key["project_id"] != "mine":
            answer = await http.delete(f"/api/v1/keys/{key['id']}", headers=bound)
            assert_problem(answer, 404, "not_found")
    answer = await http.post("/api/v1/keys", json={"project_id": "other"}, headers=bound)
    assert_names(answer, "project_id", 403)
    made = await http.post("/api/v1/keys", json={}, headers=bound)
    assert made.json()["project_id"] == "mine"
    assert (
        await http.delete(f"/api/v1/keys/{made.json()['id']}", headers=bound)
    ).status_code == 204


async def dead_run(api: AsyncClient, runtime: Runtime, tenant_id: UUID, **more: str) -> str:
    """A run whose only attempt failed, recorded as a worker does."""
    answer = await api.post("/api/v1/traces", json=trace(**more))
    run_id = UUID(answer.json()["run_id"])
    async with runtime.sessions.for_tenant(tenant_id) as session:
        claim = await lifecycle.claim_run(session, run_id, "w", runtime.lease_duration)
        assert claim.run is not None
        claim.run.attempt_count = claim.run.max_attempts
        await session.flush()
        await lifecycle.record_failure(session, claim.run, InvalidRequest("the cause"))
    return str(run_id)


async def test_dead_run_shows_cause_and_can_be_retried(api, tenant, runtime, drain):
    run_id = await dead_run(api, runtime, tenant.id)
    await new_trace(api, reflect="always")
    dead = (await api.get("/api/v1/runs?state=dead,failed")).json()["items"]
    assert [run["id"] for run in dead] == [run_id]
    assert dead[0]["error"]["message"] == "the cause"
    answer = await api.post(f"/api/v1/runs/{run_id}/retry")
    assert answer.status_code == 202
    assert (answer.json()["state"], answer.json()["attempt_count"]) == ("queued", 0)
    assert_problem(await api.post(f"/api/v1/runs/{run_id}/retry"), 409, "conflict")
    await drain(tenant.id)
    done = (await api.get(f"/api/v1/runs/{run_id}")).json()
    assert (done["state"], done["error"]) == ("done", None)
    assert done["finished_at"]
    assert_problem(await api.post(f"/api/v1/runs/{run_id}/retry"), 409, "conflict")


async def test_runs_are_listed_by_state_kind_and_trace(api: AsyncClient, tenant, drain) -> None:
    first = await new_trace(api, reflect="always")
    await drain(tenant.id)
    second = await new_trace(api, reflect="always", project_id="p")

    async def traces_of(query: str) -> list[str]:
        answer = await api.get(f"/api/v1/runs{query}")
        assert answer.status_code == 200, answer.text
        return [run["trace_id"] for run in answer.json()["items"]]

    assert await traces_of("") == [second, first, first]
    assert await traces_of("?state=done") == [first, first]
    assert await traces_of("?state=queued,done") == [second, first, first]
    assert await traces_of("?kind=evaluate") == [second, first]
    assert await traces_of("?kind=reflect") == [first]
    assert await traces_of("?kind=dream") == []
    assert await traces_of("?project_id=p") == [second]
    assert await traces_of(f"?trace_id={first}") == [first, first]
    (step,) = (await api.get("/api/v1/runs?kind=reflect")).json()["items"]
    assert await traces_of(f"?parent_id={step['parent_id']}") == [first]
    assert await traces_of(f"?parent_id={step['id']}") == []
    assert await traces_of(f"?parent_id={uuid4()}") == []
    assert_names(await api.get("/api/v1/runs?state=done,gone"), "state.1")
    assert_names(await api.get("/api/v1/runs?trace_id=x"), "trace_id")
    assert_problem(await api.get(f"/api/v1/runs/{uuid4()}"), 404, "not_found")
    assert_problem(await api.post(f"/api/v1/runs/{uuid4()}/retry"), 404, "not_found")
    assert_names(await api.get("/api/v1/runs/x"), "run_id")


async def test_key_of_project_sees_only_its_runs(api, tenant, runtime) -> None:
    other = await dead_run(api, runtime, tenant.id, project_id="other")
    mine = await dead_run(api, runtime, tenant.id, project_id="mine")
    bound = await new_key(api, "write", project_id="mine")
    listed = (await api.get("/api/v1/runs", headers=bound)).json()["items"]
    assert [run["id"] for run in listed] == [mine]
    answer = await api.get("/api/v1/runs?project_id=other", headers=bound)
    assert_names(answer, "project_id", 403)
    for method, tail in (("GET", ""), ("POST", "/retry")):
        hidden = await api.request(method, f"/api/v1/runs/{other}{tail}", headers=bound)
        missing = await api.request(method, f"/api/v1/runs/{uuid4()}{tail}", headers=bound)
        assert_problem(hidden, 404, "not_found")
        assert without_instance(hidden) == without_instance(missing)
