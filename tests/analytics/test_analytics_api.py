"""Questions over HTTP: every one answers, filters hold, and other tenants see nothing."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import asyncpg
import pytest
from httpx2 import AsyncClient

from memory_api.analytics.csv_export import to_csv
from memory_api.analytics.questions import Question, QuestionFilter, render_statement
from tests.conftest import TestTenant
from tests.support.playbook_api import Book
from tests.support.problems import assert_problem

JULY = {"since": "2025-07-01T00:00:00Z", "until": "2025-08-01T00:00:00Z"}
URL = "/api/v1/analytics"


async def test_every_question_has_an_answer(
    api: AsyncClient, sample: TestTenant, make_tenant, open_login
) -> None:
    """Also for the statement that `sql=true` shows, and for no other tenant."""
    stranger = await make_tenant()
    login, other_login = await open_login(sample), await open_login(stranger)
    listed = (await api.get(URL)).json()["items"]
    assert [item["name"] for item in listed] == [question.value for question in Question]
    for item in listed:
        path = f"{URL}/{item['name']}"
        answer = await api.get(path, params=JULY | {"playbook": "support", "sql": True})
        assert answer.status_code == 200, (path, answer.text)
        body = answer.json()
        assert body["rows"], path
        assert list(body["rows"][0]) == body["columns"]
        assert {row["playbook"] for row in body["rows"]} == {"support"}
        assert len(await login.fetch(body["sql"])) == len(body["rows"]), path
        assert await other_login.fetch(body["sql"]) == [], path
        other = await api.get(path, params=JULY, headers=stranger.auth("read"))
        assert other.json()["rows"] == [], path


async def test_filters(api: AsyncClient, sample: TestTenant) -> None:
    section = {"section": "STRATEGIES"}
    rows = (await api.get(f"{URL}/movers", params=JULY | section)).json()["rows"]
    assert {row["section"] for row in rows} == {"STRATEGIES"}
    key = {"key": "mis-00005"}
    rows = (await api.get(f"{URL}/bullet_versions", params=JULY | key)).json()["rows"]
    assert {row["key"] for row in rows} == {"mis-00005"}
    first = (await api.get(f"{URL}/costs", params=JULY | {"limit": 3})).json()
    assert (len(first["rows"]), first["truncated"]) == (3, True)
    days = (await api.get(f"{URL}/playbook_sizes", params=JULY | {"playbook": "support"})).json()
    assert (len(days["rows"]), days["truncated"]) == (31, False)


@pytest.mark.parametrize(
    ("path", "parameters", "field"),
    [
        ("coverage", {"section": "STRATEGIES"}, "section"),
        ("movers", {"since": "2025-07-01", "until": "2025-07-01"}, "since"),
        ("movers", {"since": "0001-01-01T00:00:00Z", "until": "9999-01-01T00:00:00Z"}, None),
        ("movers", {"until": "0001-01-01T00:00:00Z"}, "until"),
        ("movers", {"sql": True, "format": "csv"}, "sql"),
        ("movers", {"limit": 10_001}, "limit"),
    ],
)
async def test_wrong_parameters(api: AsyncClient, path: str, parameters, field: str | None) -> None:
    answer = await api.get(f"{URL}/{path}", params=parameters)
    if field is None:
        assert answer.status_code == 200, answer.text
    else:
        assert_problem(answer, 422, "invalid")
        assert answer.json()["errors"][0]["field"].endswith(field)


@pytest.mark.parametrize("since", ["0001-01-01", "0001-01-02"])
async def test_longest_period(api: AsyncClient, sample: TestTenant, since: str) -> None:
    """The period before it would start earlier than PostgreSQL's first day. The driver sends the
    first day of Python as `-infinity`.
    """
    period = {"since": f"{since}T00:00:00Z", "until": "9999-01-01T00:00:00Z"}
    for question in Question:
        expected = 422 if question is Question.EFFECTS else 200  # at most 92 days
        answer = await api.get(f"{URL}/{question}", params=period)
        assert answer.status_code == expected, question


async def test_unknown_names(api: AsyncClient) -> None:
    assert_problem(await api.get(f"{URL}/movers", params={"playbook": "none"}), 404, "not_found")
    assert (await api.get(f"{URL}/movers", params={"playbook": "a\0b"})).status_code in (404, 422)
    assert (await api.get(f"{URL}/weather")).status_code == 422


async def test_csv(api: AsyncClient, sample: TestTenant) -> None:
    answer = await api.get(f"{URL}/playbook_sizes", params=JULY | {"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 31
    assert rows[0]["day"] == "2025-07-01"


def test_csv_cells_are_no_formulas() -> None:
    cells = ["=1+1", "-2", -2, "@x", None, 'a "b", c', datetime(2025, 7, 1, tzinfo=UTC)]
    (line,) = csv.reader(io.StringIO(to_csv(["a"], [cells]).split("\r\n", 1)[1]))
    assert line == ["'=1+1", "'-2", "-2", "'@x", "", 'a "b", c', "2025-07-01T00:00:00Z"]


async def test_shown_statement_quotes_its_values(open_login, tenant: TestTenant) -> None:
    """A name that contains quotes, backslashes and parameters is one literal."""
    name = "a' or '1'='1 \\' :limit"
    moment = datetime(2025, 7, 1, tzinfo=UTC)
    filter = QuestionFilter(name, moment, moment)
    login: asyncpg.Connection = await open_login(tenant)
    shown = render_statement("select :project as p", filter, tenant.id)
    assert await login.fetchval(shown) == name


async def test_bullets_that_were_never_in_use_do_not_leave_it(api: AsyncClient) -> None:
    book = Book(api, "survival")
    await book.deltas(*({"type": "ADD", "content": text} for text in ("first", "second")))
    document = (await book.now())[1]
    never = {"id": "oth-00009", "section": "oth", "content": "third", "status": "quarantined"}
    await book.put({"bullets": [*document["bullets"], never]})
    first = document["bullets"][0]["id"]
    await api.patch(f"{book.url}/bullets/{first}", json={"status": "archived"})
    rows = (await api.get(f"{URL}/survival", params={"playbook": book.name})).json()["rows"]
    counts = {row["event"]: (row["at_risk_count"], row["event_count"]) for row in rows}
    assert counts == {"left_use": (2, 1), "first_helpful_verdict": (3, 0)}
