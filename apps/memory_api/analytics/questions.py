"""The questions of analytics, and the statement of each one for a period and filters.

A line of `questions.sql` that ends with `-- if NAME` is part of the statement only if the filter
NAME is set. The first line of a statement is the question as a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from memory_api.core.errors import InvalidRequest
from memory_api.core.resources import read_sql

SQL_FILE = "analytics/questions.sql"
MAX_ROWS = 10_000
_CONDITION = " -- if "
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
_ALWAYS = "'-infinity', 'infinity'"
_SOURCE = re.compile(r"from questions\.(\w+)\(:tenant, (.*), :project, :playbook\)")
_FILTERS = ("playbook", "section", "key")


class Question(StrEnum):
    """A question of analytics, and the function of the schema `questions` that answers it."""

    BULLETS = "bullets"
    BULLET_VERSIONS = "bullet_versions"
    PLAYBOOK_SIZES = "playbook_sizes"
    CHURN = "churn"
    SURVIVAL = "survival"
    VERDICTS = "verdicts"
    MOVERS = "movers"
    VERDICT_DRIFT = "verdict_drift"
    FUNNEL = "funnel"
    EFFECTS = "effects"
    IMPROVEMENT = "improvement"
    COVERAGE = "coverage"
    UNCOVERED_QUERIES = "uncovered_queries"
    NEAR_DUPLICATES = "near_duplicates"
    CONTRADICTIONS = "contradictions"
    CONFLICTS = "conflicts"
    COSTS = "costs"
    UNIT_COSTS = "unit_costs"
    AGENT_RUNS = "agent_runs"
    ERROR_CATEGORIES = "error_categories"


@dataclass(frozen=True)
class QuestionFilter:
    """What a question is asked about. `since` is included, `until` is excluded."""

    project: str
    since: datetime
    until: datetime
    playbook: str | None = None
    section: str | None = None
    key: str | None = None
    limit: int = 1000

    def parameters(self, tenant_id: UUID) -> dict[str, object]:
        """The values of all parameters. One row more than `limit` shows that there are more."""
        values: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"tenant": tenant_id, "limit": self.limit + 1}


def question_title(question: Question) -> str:
    return read_sql(SQL_FILE, question).split("\n", 1)[0].removeprefix("-- ")


def question_filters(question: Question) -> list[str]:
    """The filters that the question has, out of `playbook`, `section` and `key`."""
    lines = (line.rpartition(_CONDITION) for line in read_sql(SQL_FILE, question).splitlines())
    return [name for _, condition, name in lines if condition]


def has_period(question: Question) -> bool:
    """Whether the answer depends on a period. The others are about now."""
    return ":since" in read_sql(SQL_FILE, question)


def build_statement(question: Question, filter: QuestionFilter) -> str:
    """The statement with `:name` parameters. Raises `InvalidRequest` for a filter that the question
    does not have.
    """
    known = question_filters(question)
    for name in _FILTERS:
        if getattr(filter, name) is not None and name not in known:
            raise InvalidRequest(
                f"The question `{question}` has no filter `{name}`. Use: {', '.join(known)}.",
                field=name,
            )
    lines: list[str] = []
    for line in read_sql(SQL_FILE, question).splitlines()[1:]:
        text, condition, name = line.rpartition(_CONDITION)
        if not condition or getattr(filter, name) is not None:
            lines.append(text.rstrip() if condition else line)
    return "\n".join(lines)


def used_parameters(statement: str) -> set[str]:
    return set(_PARAMETER.findall(statement))


def render_statement(statement: str, filter: QuestionFilter, tenant_id: UUID) -> str:
    """The statement with its values, as a login can run it: it reads its tenant, by functions of a
    period and a playbook (migrations/login_views.py).
    """
    values = filter.parameters(tenant_id) | {"limit": filter.limit}

    def call(source: re.Match[str]) -> str:
        arguments = [] if source[2] == _ALWAYS else [source[2]]
        if filter.playbook is not None:
            arguments.append("p_playbook => :playbook")
        called = f"({', '.join(arguments)})" if arguments else ""
        return f"from analytics.{source[1]}{called}"

    text = _SOURCE.sub(call, statement)
    return _PARAMETER.sub(lambda match: _to_literal(values[match[1]]), text)


def _to_literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return f"timestamptz '{value.isoformat()}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    text = str(value).replace("'", "''")
    # E'' reads a backslash alike whatever standard_conforming_strings is.
    return "E'" + text.replace("\\", "\\\\") + "'" if "\\" in text else f"'{text}'"
