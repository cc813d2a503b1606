"""docs/analytics-views.md describes every column, and the views have the expected results."""

from __future__ import annotations

from memory_api.analytics.questions import Question, question_title
from tests.conftest import TestTenant
from tests.support.analytics_reference import (
    DOCUMENT,
    RESULTS,
    VIEWS,
    render_reference,
    render_results,
    replace_reference,
)

UNDESCRIBED = """
select c.relname || '.' || a.attname from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where c.relnamespace = 'analytics'::regnamespace and c.relkind = 'v'
  and col_description(c.oid, a.attnum) is null
"""


async def test_document_and_results_are_current(sample: TestTenant, open_login) -> None:
    """`python -m tests.support.analytics_reference` writes both again."""
    login = await open_login(sample)
    document = DOCUMENT.read_text(encoding="utf-8")
    assert replace_reference(document, await render_reference(login)) == document
    assert await render_results(login) == RESULTS.read_text(encoding="utf-8")


async def test_every_question_is_a_view_with_its_description(tenant, open_login) -> None:
    login = await open_login(tenant)
    views = {row["name"]: row["about"] for row in await login.fetch(VIEWS)}
    assert {question.value for question in Question} == views.keys() - {"days"}
    assert all(question_title(question).endswith((".", "?")) for question in Question)
    assert await login.fetch(UNDESCRIBED) == []
