"""The audit log: what is recorded, by whom, and who may read it."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from memory_api.runtime import Runtime
from tests.support.api_calls import new_key
from tests.support.problems import assert_problem

LOG = "/api/v1/audit-log"


async def entries(api: AsyncClient, **params: object) -> list[dict[str, object]]:
    answer = await api.get(LOG, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def test_keys_budgets_and_settings_are_recorded(api: AsyncClient) -> None:
    key = (await api.post("/api/v1/keys", json={"name": "ci", "scopes": ["read"]})).json()
    await api.delete(f"/api/v1/keys/{key['id']}")
    await api.put("/api/v1/budgets", json={"items": [{"period": "day", "limit_usd": 1}]})
    await api.patch("/api/v1/playbooks/p", json={"review_mode": "required"})
    log = await entries(api)
    assert [(item["action"], item["target"]) for item in log] == [
        ("playbook.configured", "playbook:p"),
        ("budgets.replaced", "budgets"),
        ("key.revoked", f"key:{key['id']}"),
        ("key.created", f"key:{key['id']}"),
    ]
    assert len({item["actor"] for item in log}) == 1
    assert str(log[0]["actor"]).startswith("key:")
    assert log[0]["details"] == {"project_id": "default", "settings": {"review_mode": "required"}}
    assert key["key"] not in str(log)


async def test_pages_and_filter(api: AsyncClient) -> None:
    for name in "abc":
        await api.post("/api/v1/keys", json={"name": name})
    first = (await api.get(LOG, params={"limit": 2})).json()
    rest = await entries(api, cursor=first["next_cursor"])
    assert [item["details"]["name"] for item in [*first["items"], *rest]] == ["c", "b", "a"]  # type: ignore[index]
    assert await entries(api, action="budgets.replaced") == []


async def test_what_fails_is_not_recorded(api: AsyncClient) -> None:
    assert_problem(await api.post("/api/v1/keys", json={"scopes": ["operator"]}), 403, "forbidden")
    assert await entries(api) == []


async def test_other_tenants_and_project_keys_do_not_see_it(
    api: AsyncClient, http: AsyncClient, make_tenant
) -> None:
    await api.post("/api/v1/keys", json={"name": "mine"})
    stranger = await make_tenant()
    answer = await http.get(LOG, headers=stranger.auth())
    assert answer.json()["items"] == []
    bound = await new_key(api, "admin", project_id="p")
    assert_problem(await http.get(LOG, headers=bound), 403, "forbidden")


@pytest.mark.parametrize("statement", ["update audit_log set actor = ''", "delete from audit_log"])
async def test_service_cannot_change_it(runtime: Runtime, tenant, statement: str) -> None:
    with pytest.raises(DBAPIError, match="permission denied"):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await session.execute(text(statement))
