"""Questions of analytics and their answers on the wire."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from memory_api.analytics.questions import Question
from memory_api.core.schemas import Page, ResponseModel, UtcDatetime, with_examples


class QuestionInfo(ResponseModel):
    """A question, and the filters that it has."""

    model_config = with_examples(
        {
            "name": "playbook_sizes",
            "title": "How many active bullets did a playbook have at the end of each day?",
            "filters": ["playbook"],
        }
    )

    name: Question
    title: str = Field(description="The question as a sentence.")
    filters: list[str] = Field(description="Out of `playbook`, `section` and `key`.")


class QuestionPage(Page[QuestionInfo]):
    """All questions."""


class AnalyticsAnswer(ResponseModel):
    """The rows that answer a question. docs/analytics.md describes the columns."""

    model_config = ResponseModel.model_config | with_examples(
        {
            "question": "playbook_sizes",
            "title": "How many active bullets did a playbook have at the end of each day?",
            "since": "2026-10-01T00:00:00Z",
            "until": "2026-10-02T00:00:00Z",
            "columns": ["playbook", "day", "active_count"],
            "rows": [{"playbook": "support", "day": "2026-10-01", "active_count": 42}],
            "truncated": False,
            "sql": None,
        }
    )

    question: Question
    title: str
    since: UtcDatetime | None = Field(description="Null for a question without a period.")
    until: UtcDatetime | None = Field(description="Null for a question without a period.")
    columns: list[str] = Field(description="The names of the columns, in order.")
    rows: list[dict[str, Any]] = Field(description="One object per row: column → value.")
    truncated: bool = Field(description="Whether there are more rows than `limit`.")
    sql: str | None = Field(
        description="With `sql=true`: the statement, for a read-only login of your tenant."
    )
