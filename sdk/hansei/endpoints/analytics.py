"""Questions about the evolution of playbooks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

from hansei._request import API, Request, api_path, get_request
from hansei.types import Json


class QuestionInfo(TypedDict):
    """`filters` are those that the question has, out of playbook, section and key."""

    name: str
    title: str
    filters: list[str]


class QuestionList(TypedDict):
    items: list[QuestionInfo]


class AnalyticsAnswer(TypedDict):
    """The rows that answer a question. `sql` is set if it was requested."""

    question: str
    title: str
    since: str
    until: str
    columns: list[str]
    rows: list[Json]
    truncated: bool
    sql: str | None


def list_questions() -> Request[QuestionList]:
    """List the questions that `get_analytics` answers."""
    return get_request(f"{API}/analytics")


def get_analytics(
    question: str,
    *,
    since: str | None = None,
    until: str | None = None,
    playbook: str | None = None,
    section: str | None = None,
    key: str | None = None,
    project_id: str | None = None,
    limit: int = 1000,
    sql: bool = False,
) -> Request[AnalyticsAnswer]:
    """Answer a question about playbooks: `bullet_versions`, `movers`, `effects`, `costs`, ….

    Covers the last 30 days unless `since` and `until` (ISO 8601 times) are set. `list_questions`
    lists all questions. With `sql`, the answer contains its statement.
    """
    params: dict[str, Any] = {
        "since": since,
        "until": until,
        "playbook": playbook,
        "section": section,
        "key": key,
        "project_id": project_id,
        "limit": limit,
        "sql": sql or None,
    }
    return get_request(api_path("analytics", question), **params)


def get_analytics_csv(
    question: str,
    *,
    since: str | None = None,
    until: str | None = None,
    playbook: str | None = None,
    section: str | None = None,
    key: str | None = None,
    project_id: str | None = None,
    limit: int = 10_000,
) -> Request[str]:
    """Answer a question as CSV with a header. A text that a spreadsheet would execute as a formula
    starts with an apostrophe.
    """
    params: dict[str, Any] = {
        "since": since,
        "until": until,
        "playbook": playbook,
        "section": section,
        "key": key,
        "project_id": project_id,
        "limit": limit,
        "format": "csv",
    }
    request: Request[str] = get_request(api_path("analytics", question), **params)
    return replace(request, response_format="text")
