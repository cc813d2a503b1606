"""SQL that a person writes, run with the read-only login of the tenant."""

from __future__ import annotations

import shlex
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.analytics.csv_export import to_csv
from memory_api.analytics.queries import (
    delete_saved_statement,
    get_sql_credential,
    list_saved_statements,
    upsert_saved_statement,
)
from memory_api.analytics.questions import Question, question_title
from memory_api.analytics.sql_statements import (
    STATEMENT_SECONDS,
    StatementResult,
    run_statement,
)
from memory_api.analytics.tables import SqlCredentialRow
from memory_api.api.deps import Reader, RuntimeDep, Session, Writer
from memory_api.auth.identity import Identity
from memory_api.auth.queries import require_tenant_slug
from memory_api.console.error_texts import TOO_LONG
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.rendering import render_page
from memory_api.console.visit import Visit
from memory_api.core.errors import Forbidden, HanseiError, InvalidRequest
from memory_api.core.log_context import current_actor
from memory_api.runtime import Runtime
from memory_api.tenants.audit_log import record_audit_event

router = APIRouter(prefix="/console/sql", route_class=ConsoleRoute, include_in_schema=False)

MAX_SHOWN_ROWS = 500
MAX_CSV_ROWS = 10_000
MAX_STATEMENT_LENGTH = 20_000
MAX_NAME_LENGTH = 128
FIRST_STATEMENT = """select key, section, helpful, harmful, usefulness
from bullets
where status = 'active'
order by usefulness desc
limit 20"""


@router.get("")
async def show_sql(
    visit: CurrentVisit,
    runtime: RuntimeDep,
    _caller: Reader,
    saved: UUID | None = None,
    view: Question | None = None,
    done: str = "",
) -> Response:
    """`saved` and `view` choose the statement in the form. It is not run."""
    return await _sql_page(visit, runtime, saved=saved, view=view, done=done)


@router.post("")
async def run_sql(visit: CurrentVisit, runtime: RuntimeDep, caller: Reader, form: Form) -> Response:
    """Run the statement of the form: the rows are part of the page, or a CSV file. After an
    error, the form still contains the statement.
    """
    statement, is_csv = form.text("statement"), form.text("format") == "csv"
    try:
        credential = await _record_statement(runtime, caller, statement, is_csv)
        limit = MAX_CSV_ROWS if is_csv else MAX_SHOWN_ROWS
        url = runtime.settings.listen_url or runtime.sessions.engine.url.render_as_string(
            hide_password=False
        )
        result = await run_statement(url, credential, statement, limit)
    except HanseiError as error:
        return await _sql_page(visit, runtime, statement=statement, error=error)
    if is_csv:
        return Response(
            to_csv(result.columns, result.rows),
            media_type="text/csv",
            headers={"Content-Disposition": 'attachment; filename="hansei.csv"'},
        )
    return await _sql_page(visit, runtime, statement=statement, result=result)


@router.post("/saved")
async def save_statement(
    visit: CurrentVisit, runtime: RuntimeDep, caller: Writer, form: Form
) -> Response:
    """Save the statement under a name. A statement of that name is replaced."""
    statement, name = form.text("statement"), form.text("name")
    try:
        _require_all_projects(caller)
        _validate_statement(statement)
        if not name:
            raise InvalidRequest("Name: Must not be empty.", field="name")
        if len(name) > MAX_NAME_LENGTH:
            too_long = TOO_LONG % {"count": MAX_NAME_LENGTH}
            raise InvalidRequest(f"Name: {too_long}", field="name")
        async with runtime.sessions.for_tenant(caller.tenant_id) as session:
            await upsert_saved_statement(session, name, statement, current_actor())
    except HanseiError as error:
        return await _sql_page(visit, runtime, statement=statement, name=name, error=error)
    return await _sql_page(visit, runtime, statement=statement, done="saved")


@router.post("/saved/{statement_id}/delete")
async def delete_statement(
    statement_id: UUID, visit: CurrentVisit, session: Session, caller: Writer
) -> Response:
    _require_all_projects(caller)
    await delete_saved_statement(session, statement_id)
    return RedirectResponse(visit.link("sql", done="deleted"), 303)


async def _record_statement(
    runtime: Runtime, caller: Identity, statement: str, is_csv: bool
) -> SqlCredentialRow:
    """Record in the audit log who runs what, before it runs, and return the login."""
    _require_all_projects(caller)
    _validate_statement(statement)
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        credential = await get_sql_credential(session)
        if credential is None:
            raise InvalidRequest("No login is configured for SQL.")
        details = {"statement": statement, "format": "csv" if is_csv else "page"}
        target = f"role:{credential.role_name}"
        await record_audit_event(session, "statement.started", target, details)
    return credential


def _require_all_projects(caller: Identity) -> None:
    """The login reads all projects of its tenant."""
    if caller.project_id is not None:
        raise Forbidden("SQL reads all projects. Use an API key that is not bound to a project.")


def _validate_statement(statement: str) -> None:
    if not statement:
        raise InvalidRequest("Write a statement first.", field="statement")
    if len(statement) > MAX_STATEMENT_LENGTH:
        raise InvalidRequest(
            f"The statement has {len(statement):,} characters. The limit is"
            f" {MAX_STATEMENT_LENGTH:,}.",
            field="statement",
        )


async def _sql_page(
    visit: Visit,
    runtime: Runtime,
    *,
    statement: str | None = None,
    name: str = "",
    saved: UUID | None = None,
    view: Question | None = None,
    result: StatementResult | None = None,
    error: HanseiError | None = None,
    done: str = "",
) -> Response:
    async with runtime.sessions.for_tenant(visit.caller.tenant_id) as session:
        credential = await get_sql_credential(session)
        statements = await list_saved_statements(session)
        tenant = await require_tenant_slug(session)
    chosen = next((row for row in statements if row.id == saved), None)
    values: dict[str, Any] = {
        "has_login": credential is not None,
        "tenant": shlex.quote(tenant),
        "statements": statements,
        "views": [(question, question_title(question)) for question in Question],
        "name": chosen.name if chosen else name,
        "seconds": STATEMENT_SECONDS,
        "limits": (MAX_SHOWN_ROWS, MAX_CSV_ROWS),
        "result": result,
        "error": error,
        "done": done,
    }
    if statement is not None:
        statement = statement[:MAX_STATEMENT_LENGTH]
    else:
        statement = chosen.statement if chosen else FIRST_STATEMENT
        if view is not None:
            statement = f"select *\nfrom {view}\nlimit 100"
    status = error.status if error else 200
    return render_page(visit, "sql/sql.html", status, statement=statement, **values)
