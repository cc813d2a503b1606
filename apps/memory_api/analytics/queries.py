"""Answers of questions, the logins of BI tools and of the console, and saved statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Text, Uuid, column, delete, func, select, table, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.analytics.questions import (
    Question,
    QuestionFilter,
    build_statement,
    render_statement,
    used_parameters,
)
from memory_api.analytics.tables import SavedStatementRow, SqlCredentialRow
from memory_api.core.db import Sessions, current_tenant_id
from memory_api.core.errors import Conflict, InvalidRequest, NotFound
from memory_api.core.ids import new_id

MAX_STATEMENT_SECONDS = 20
MAX_SAVED_STATEMENTS = 200
MAX_EFFECT_PERIOD = timedelta(days=92)
"""Effects are computed from retrievals, which the default retention deletes after 90 days."""
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
    if question is Question.EFFECTS and filter.until - filter.since > MAX_EFFECT_PERIOD:
        raise InvalidRequest(
            f"The effects cover at most {MAX_EFFECT_PERIOD.days} days. Set a later `since`.",
            field="since",
        )
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
        raise NotFound(f"Playbook '{name}' not found.")


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


async def end_login_sessions(sessions: Sessions) -> int:
    """End the sessions of logins whose tenant is not active, and long transactions of logins.
    Returns their number. Needs the worker role.
    """
    async with sessions.without_tenant() as session:
        return (await session.execute(select(func.analytics.end_login_sessions()))).scalar_one()


@dataclass(frozen=True)
class LoginSession:
    """A process of PostgreSQL that works for a login. A parallel worker has a leader."""

    pid: int
    role_name: str
    leader_pid: int | None


async def list_login_sessions(sessions: Sessions) -> Sequence[LoginSession]:
    """The sessions of all logins of this database. Needs the worker role."""
    async with sessions.without_tenant() as session:
        found = await session.execute(
            text("select pid, role_name, leader_pid from analytics.login_sessions()")
        )
        return [LoginSession(*row) for row in found]


async def get_sql_credential(session: AsyncSession) -> SqlCredentialRow | None:
    """The login with which the console runs SQL for the session's tenant."""
    return await session.get(SqlCredentialRow, current_tenant_id(session))


async def replace_sql_credential(session: AsyncSession, role_name: str, password: str) -> None:
    """Store a new login for the console and delete the previous one. Needs the owner role."""
    known = await get_sql_credential(session)
    if known is not None:
        await drop_login(session, known.role_name)
        await session.delete(known)
        await session.flush()
    session.add(
        SqlCredentialRow(
            tenant_id=current_tenant_id(session), role_name=role_name, password=password
        )
    )
    await session.flush()


async def delete_sql_credential(session: AsyncSession, role_name: str) -> None:
    """Delete the login of the console, if it is this one. Needs the owner role."""
    await session.execute(
        delete(SqlCredentialRow).where(
            SqlCredentialRow.tenant_id == current_tenant_id(session),
            SqlCredentialRow.role_name == role_name,
        )
    )


async def list_saved_statements(session: AsyncSession) -> Sequence[SavedStatementRow]:
    """All saved statements of the tenant, by name."""
    row = SavedStatementRow
    statement = select(row).where(row.tenant_id == current_tenant_id(session)).order_by(row.name)
    return (await session.scalars(statement)).all()


async def upsert_saved_statement(
    session: AsyncSession, name: str, statement: str, actor: str
) -> None:
    """Save a statement, or replace the one of this name. Raises `Conflict` if the tenant has
    `MAX_SAVED_STATEMENTS` others.
    """
    known = {row.name for row in await list_saved_statements(session)}
    if len(known) >= MAX_SAVED_STATEMENTS and name not in known:
        raise Conflict(f"{MAX_SAVED_STATEMENTS} statements are saved. Delete one first.")
    values = {"name": name, "statement": statement, "saved_by": actor}
    added = insert(SavedStatementRow).values(
        tenant_id=current_tenant_id(session), id=new_id(), **values
    )
    await session.execute(
        added.on_conflict_do_update(
            index_elements=["tenant_id", "name"],
            set_=values | {"updated_at": added.excluded.updated_at},
        )
    )


async def delete_saved_statement(session: AsyncSession, statement_id: UUID) -> None:
    row = SavedStatementRow
    await session.execute(
        delete(row).where(row.tenant_id == current_tenant_id(session), row.id == statement_id)
    )
