"""Answers of questions, and the logins of BI tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, Uuid, column, func, select, table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.analytics.questions import (
    Question,
    QuestionFilter,
    build_statement,
    render_statement,
    used_parameters,
)
from apps.memory_api.core.db import current_tenant_id
from apps.memory_api.core.errors import InvalidRequest, NotFound

MAX_STATEMENT_SECONDS = 20
_QUERY_CANCELED = "57014"
_PLAYBOOKS = table(
    "playbooks", column("tenant_id", Uuid()), column("project_id", Text()), column("name", Text())
)


@dataclass(frozen=True)
class QuestionAnswer:
    """The rows that answer a question. `statement` has its values, without the tenant."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    truncated: bool
    """Whether there are more than `limit` rows."""
    statement: str


async def load_answer(
    session: AsyncSession, question: Question, filter: QuestionFilter
) -> QuestionAnswer:
    """Answers a question. Raises `NotFound` for an unknown playbook, and `InvalidRequest` if the
    answer takes more than `MAX_STATEMENT_SECONDS` or the question lacks a filter.
    """
    tenant_id = current_tenant_id(session)
    statement = build_statement(question, filter)
    if filter.playbook is not None:
        await _require_playbook(session, filter.project, filter.playbook)
    await session.execute(text(f"set local statement_timeout = '{MAX_STATEMENT_SECONDS}s'"))
    # The best plan depends on the period.
    await session.execute(text("set local plan_cache_mode = force_custom_plan"))
    values = filter.parameters(tenant_id)
    given = {name: values[name] for name in used_parameters(statement)}
    try:
        result = await session.execute(text(statement), given)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _QUERY_CANCELED:
            raise
        raise InvalidRequest(
            f"The answer takes longer than {MAX_STATEMENT_SECONDS} seconds. Set `playbook`, or a"
            " shorter period.",
            field="since",
        ) from error
    columns = list(result.keys())
    rows = [tuple(row) for row in result.all()]
    shown = render_statement(statement, filter, tenant_id)
    return QuestionAnswer(columns, rows[: filter.limit], len(rows) > filter.limit, shown)


async def _require_playbook(session: AsyncSession, project: str, name: str) -> None:
    playbooks = _PLAYBOOKS.c
    statement = select(playbooks.name).where(
        playbooks.tenant_id == current_tenant_id(session),
        playbooks.project_id == project,
        playbooks.name == name,
    )
    if await session.scalar(statement) is None:
        raise NotFound("Playbook not found.")


async def create_login(session: AsyncSession, verifier: str) -> str:
    """Creates a read-only login for the session's tenant and returns its name. `verifier` is a
    SCRAM-SHA-256 verifier of the password. Needs the owner role.
    """
    create = func.analytics.create_login(current_tenant_id(session), verifier)
    return (await session.execute(select(create))).scalar_one()


async def drop_login(session: AsyncSession, role_name: str) -> bool:
    """Deletes a login. False if the session's tenant has no such login. Needs the owner role."""
    drop = func.analytics.drop_login(current_tenant_id(session), role_name)
    return (await session.execute(select(drop))).scalar_one()
