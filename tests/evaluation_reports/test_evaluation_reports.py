"""Reports of `hansei eval` over HTTP: publish, replace, read, delete; bounds and isolation."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.evaluation_reports import queries
from memory_api.evaluation_reports.schemas import CREATE_EXAMPLE
from tests.conftest import TestTenant
from tests.support.api_calls import trace
from tests.support.evaluation_report import evaluation_report
from tests.support.problems import assert_problem

URL = "/api/v1/evaluation-reports"


async def publish(api: AsyncClient, report: dict[str, Any], **fields: Any) -> dict[str, Any]:
    answer = await api.post(URL, json={"report": report, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_report_is_published_replaced_and_deleted(api: AsyncClient) -> None:
    report = evaluation_report()
    made = await publish(api, report)
    assert (made["playbook"], made["created_at"]) == ("support", "2026-03-01T10:15:00Z")
    assert made["summary"]["agent"] == "python my_agent.py"
    assert "became_right" not in made["summary"]["comparisons"][0]
    read = (await api.get(f"{URL}/{made['id']}")).json()
    assert read == made | {"report": report}
    again = await publish(api, report | {"total_usd": None})
    assert again["id"] == made["id"]
    assert again["summary"]["total_usd"] is None
    other = await publish(api, evaluation_report("other", None))
    listed = (await api.get(URL)).json()["items"]
    assert [item["id"] for item in listed] == [other["id"], made["id"]]
    assert "report" not in listed[0]
    assert (await api.delete(f"{URL}/{made['id']}")).status_code == 204
    assert_problem(await api.get(f"{URL}/{made['id']}"), 404, "not_found")
    assert [item["id"] for item in (await api.get(URL)).json()["items"]] == [other["id"]]


async def test_pages_follow_each_other(api: AsyncClient) -> None:
    ids = [(await publish(api, evaluation_report(str(number))))["id"] for number in range(3)]
    first = (await api.get(URL, params={"limit": 2})).json()
    rest = (await api.get(URL, params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [item["id"] for item in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("plan", [], "`plan`"),
        ("plan.created_at", "yesterday", "`created_at`"),
        ("plan.created_at", "2026-03-01T10:15:00", "`created_at`"),
        ("plan.created_at", "0001-01-01T00:00:00+14:00", "`created_at`"),
        ("plan.created_at", "9999-12-31T23:59:59-14:00", "`created_at`"),
        ("plan.id", "x" * 129, "`id`"),
        ("plan.protocol.arms", ["mine"], "`arms`"),
        ("plan.protocol.arms", [{}], "`arms`"),
        ("plan.protocol.arms", ["none", "none"], "`arms`"),
        ("advice", [CREATE_EXAMPLE["report"]["advice"][0]] * 101, "`advice`"),
        ("primary", "all tasks", "`primary`"),
        ("accuracy", {"phase": "primary"}, "`accuracy`"),
        ("accuracy", [1], "`accuracy`"),
        ("accuracy.0.phase", {}, "`phase`"),
        ("accuracy.1.mean", 1.5, "`mean`"),
        ("accuracy.1.phase", "stream", "`accuracy` lacks an arm"),
        ("comparisons.0.p", "NaN", "`p`"),
        ("comparisons.0.first", "none", "`first`"),
        ("comparisons.0.became_right", [1], "`became_right`"),
        ("controls.0.mean", -2, "`mean`"),
        ("agentcl.0.plasticity", {"mean": 0}, "`plasticity`"),
        ("curve.0.arms", {"none": "much"}, "`arms`"),
        ("costs.0.usd", -1, "`usd`"),
        ("failures.0.error", None, "`error`"),
        ("notes", "none", "`notes`"),
    ],
)
async def test_damaged_report_is_refused(
    api: AsyncClient, path: str, value: object, named: str
) -> None:
    report = copy.deepcopy(evaluation_report())
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = report
    for part in parents:
        place = place[part]
    place[last] = value
    answer = await api.post(URL, json={"report": report})
    problem = assert_problem(answer, 422, "invalid")
    assert named in problem["detail"]
    del place[last]
    assert_problem(await api.post(URL, json={"report": report}), 422, "invalid")
    assert (await api.get(URL)).json()["items"] == []


async def test_report_is_bounded_and_redacted(
    api: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = evaluation_report() | {"notes": ["x" * 2_000_000]}
    assert_problem(await api.post(URL, json={"report": large}), 413, "too_large")
    report = evaluation_report()
    report["plan"]["agent"] = f"OPENAI_API_KEY=sk-proj-{'a1B2' * 12} python my_agent.py"
    made = await publish(api, report)
    assert "a1B2" not in (await api.get(f"{URL}/{made['id']}")).text
    report["plan"]["agent"] = "x" * 900_000
    made = await publish(api, report)
    assert len(made["summary"]["agent"]) == 1_000
    monkeypatch.setattr(queries, "MAX_REPORTS", 1)
    await publish(api, report)  # replaces
    refused = await api.post(URL, json={"report": evaluation_report("second")})
    assert_problem(refused, 409, "conflict")
    assert len((await api.get(URL)).json()["items"]) == 1


async def test_project_that_does_not_exist_is_refused(api: AsyncClient) -> None:
    for project in ("support", "sales"):
        (await api.post("/api/v1/traces", json=trace(project_id=project))).raise_for_status()
    body = {"report": evaluation_report(), "project_id": "suport"}
    problem = assert_problem(await api.post(URL, json=body), 422, "invalid")
    assert problem["detail"] == (
        "Project 'suport' has no trace and no memory. Existing projects, the most similar first:"
        " support, default, sales."
    )
    assert problem["errors"][0]["field"] == "project_id"
    await publish(api, evaluation_report(), project_id="support")
    assert (await api.get(URL, params={"project_id": "suport"})).json()["items"] == []


async def test_reports_of_others_are_not_seen(
    api: AsyncClient, http: AsyncClient, make_tenant: Callable[[], Awaitable[TestTenant]]
) -> None:
    other = await make_tenant()
    (await api.post("/api/v1/traces", json=trace(project_id="one"))).raise_for_status()
    made = await publish(api, CREATE_EXAMPLE["report"], project_id="one")
    assert (await api.get(URL)).json()["items"] == []
    body = {"name": "two", "scopes": ["write"], "project_id": "two"}
    bound = (await api.post("/api/v1/keys", json=body)).json()["key"]
    for headers in ({"Authorization": f"Bearer {bound}"}, other.auth("write")):
        for method in ("GET", "DELETE"):
            answer = await http.request(method, f"{URL}/{made['id']}", headers=headers)
            assert_problem(answer, 404, "not_found")
        assert (await http.get(URL, headers=headers)).json()["items"] == []
    assert (await api.get(URL, params={"project_id": "one"})).json()["items"][0]["id"] == made["id"]
