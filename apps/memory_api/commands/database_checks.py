"""The checks of `hansei doctor` on the database: row-level security, functions, indexes, clock and
disk.

They read PostgreSQL's catalogs, so they need no rights on the tables.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import Index, TextClause, bindparam, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex

from memory_api.commands.doctor_checks import CheckResult
from memory_api.core.db import Base, Sessions
from memory_api.core.migrations import function_statements
from memory_api.core.resources import read_sql

UNPROTECTED_TABLES = text(read_sql("commands/doctor.sql", "unprotected_tables"))
TENANT_TABLE_COUNT = text(read_sql("commands/doctor.sql", "tenant_table_count"))
INVALID_INDEXES = text(read_sql("commands/doctor.sql", "invalid_indexes"))
EXISTING_INDEXES = text(read_sql("commands/doctor.sql", "existing_indexes")).bindparams(
    bindparam("names", expanding=True)
)
MAY_CREATE_TEMPORARY = text(read_sql("commands/doctor.sql", "may_create_temporary"))
FUNCTION_TEXTS = text(read_sql("commands/doctor.sql", "function_texts"))
LOGIN_RIGHTS = text(read_sql("commands/doctor.sql", "login_rights"))
FILE_RIGHTS = text(read_sql("commands/doctor.sql", "file_rights"))
OWNER_RIGHTS = text(read_sql("commands/doctor.sql", "owner_rights"))
ENDLESS_SESSIONS = text(read_sql("commands/doctor.sql", "endless_sessions"))
NOTIFICATION_USAGE = text(read_sql("commands/doctor.sql", "notification_usage"))
DATABASE_SIZE = text(read_sql("commands/doctor.sql", "database_size"))
CLOCK = text(read_sql("commands/doctor.sql", "clock"))

MAX_CLOCK_DIFFERENCE_SECONDS = 5.0
"""Leases are compared with the clocks of the workers."""
MAX_NOTIFICATION_USAGE = 0.5
MIN_FREE_BYTES = 2 * 1024**3
MIN_FREE_SHARE = 0.1
"""Of the disk. Less is sufficient if it is ten times the size of the database."""
MAX_LISTED_NAMES = 10


async def check_row_security(sessions: Sessions) -> CheckResult:
    """Every table with a tenant must force row-level security and have a policy."""
    unprotected = await _fetch_names(sessions, UNPROTECTED_TABLES)
    if unprotected:
        message = f"row-level security is not forced on: {_list(unprotected)}"
        fix = "Stop the service: tenants may see each other's rows. Restore the policies of"
        return CheckResult("isolation", False, message, f"{fix} migrations/sql/policies.sql.")
    async with sessions.without_tenant() as session:
        count = await session.scalar(TENANT_TABLE_COUNT)
    if not count:
        return CheckResult("isolation", False, "there are no tables", "Run `hansei migrate`.")
    return CheckResult("isolation", True, f"row-level security is forced on {count} tables")


async def check_functions(sessions: Sessions) -> CheckResult:
    """The functions of the database must be those of this release. Each is created again in the
    temporary schema of the connection, and PostgreSQL's text of both is compared, without the mode
    of plans, which depends on the distribution.
    """
    statements = function_statements()
    async with sessions.without_tenant() as session:
        if not await session.scalar(MAY_CREATE_TEMPORARY):
            message = "not compared: this role must not create temporary objects"
            return CheckResult("functions", True, f"{message}; set HANSEI_OWNER_URL")
        connection = await session.connection()
        for name, statement in statements.items():
            start = re.compile(rf"function {re.escape(name)}\(", re.IGNORECASE)
            temporary = start.sub(f"function {_temporary(name)}(", statement, count=1)
            await connection.exec_driver_sql(temporary)
        rows = (await session.execute(FUNCTION_TEXTS)).all()
    # Functions of two schemas have one name, but not one number of arguments.
    texts = {(name, count): text for name, count, text in rows}
    same = {
        name
        for (name, count), text in texts.items()
        if name in statements and texts.get((_temporary(name), count)) == text
    }
    different = [name for name in statements if name not in same]
    if different:
        message = f"not those of this release: {_list(different)}"
        fix = "Restore the backup, or as the owner run their statements in migrations/sql."
        return CheckResult("functions", False, message, fix)
    return CheckResult("functions", True, f"{len(statements)} functions are those of this release")


def _temporary(name: str) -> str:
    return f"pg_temp.{name.rpartition('.')[2]}"


_REINDEX_LEFTOVER = re.compile(r"_cc(new|old)\d*$")
"""The end of the name of an index that an interrupted `reindex concurrently` left."""


async def check_table_indexes(sessions: Sessions) -> CheckResult:
    """The indexes of the tables must exist and be valid."""
    indexes = {str(i.name): i for table in Base.metadata.tables.values() for i in table.indexes}
    names = sorted(indexes)
    async with sessions.without_tenant() as session:
        existing = set((await session.scalars(EXISTING_INDEXES, {"names": names})).all())
    missing = [name for name in names if name not in existing]
    invalid = await _fetch_names(sessions, INVALID_INDEXES)
    if missing:
        statements = "; ".join(_create_statement(indexes[name]) for name in missing)
        fix = f"As the owner, run `{statements};`."
        return CheckResult("table indexes", False, f"missing: {_list(missing)}", fix)
    if invalid:
        name = invalid[0]
        is_leftover = _REINDEX_LEFTOVER.search(name) is not None
        statement = f"{'drop' if is_leftover else 'reindex'} index concurrently {name};"
        fix = f"As the owner, run `{statement}`, and `hansei doctor` again."
        return CheckResult("table indexes", False, f"invalid: {_list(invalid)}", fix)
    return CheckResult("table indexes", True, f"{len(names)} indexes exist and are valid")


async def check_logins(sessions: Sessions) -> CheckResult:
    """Logins for SQL must not be able to take locks, fill the disk or keep sessions."""
    fix = (
        "As a superuser, run apps/memory_api/embedded/superuser.sql in this database"
        " (docs/install.md), and `revoke connect on database … from public` for each other one."
    )
    if rights := await _fetch_names(sessions, FILE_RIGHTS):
        names = _list(dict.fromkeys(rights))
        message = f"the service can read and write files of the database server: it may use {names}"
        return CheckResult("logins", False, message, fix)
    rights = await _fetch_names(sessions, LOGIN_RIGHTS)
    if rights:
        names = _list(dict.fromkeys(rights))
        message = f"a login for SQL can stop or watch the work of others: it may use {names}"
        return CheckResult("logins", False, message, fix)
    async with sessions.without_tenant() as session:
        has_rights = bool(await session.scalar(OWNER_RIGHTS))
    if not has_rights:
        message = "logins for SQL have no limit of temporary files, and their sessions cannot be"
        return CheckResult("logins", False, f"{message} ended", fix)
    if endless := await _fetch_names(sessions, ENDLESS_SESSIONS):
        message = f"PostgreSQL could not interrupt the statement of {_list(endless)}"
        fix = "VACUUM removes no old rows until it ends. If it does not, restart PostgreSQL."
        return CheckResult("logins", False, message, fix)
    return CheckResult("logins", True, "logins for SQL are limited")


async def check_notifications(sessions: Sessions) -> CheckResult:
    """PostgreSQL's queue of notifications. When it is full, workers only poll."""
    async with sessions.without_tenant() as session:
        usage = float(str(await session.scalar(NOTIFICATION_USAGE)))
    message = f"{usage:.0%} of PostgreSQL's queue of notifications is used"
    if usage <= MAX_NOTIFICATION_USAGE:
        return CheckResult("notifications", True, message)
    fix = "End the transaction that is open for longest and listens (pg_stat_activity)."
    return CheckResult("notifications", False, message, fix)


async def check_clock(sessions: Sessions) -> CheckResult:
    """The clocks of this machine and of the database must agree. Half of the round trip is the
    error of the measurement.
    """
    async with sessions.without_tenant() as session:
        before = time.time()
        database_time = float(str(await session.scalar(CLOCK)))
        after = time.time()
    difference = database_time - (before + after) / 2
    message = f"the database's clock differs by {abs(difference):.1f} s"
    if abs(difference) - (after - before) / 2 > MAX_CLOCK_DIFFERENCE_SECONDS:
        direction = "ahead of" if difference > 0 else "behind"
        message = f"the database's clock is {abs(difference):.0f} s {direction} this machine's"
        fix = "Synchronize both clocks with NTP. Until then, leases may end early or late."
        return CheckResult("clock", False, message, fix)
    return CheckResult("clock", True, message)


async def check_disk(sessions: Sessions, folder: Path | None) -> CheckResult:
    """Free space of the database's disk. `folder` is that of the embedded database; None for a
    server, whose disk a client cannot ask for.
    """
    async with sessions.without_tenant() as session:
        size = int(str(await session.scalar(DATABASE_SIZE)))
    if folder is None:
        message = f"the database has {_gigabytes(size)}; its free disk space is not visible here"
        return CheckResult("disk", True, message)
    usage = shutil.disk_usage(folder)
    message = f"{_gigabytes(usage.free)} of {_gigabytes(usage.total)} free in {folder}"
    if usage.free < max(MIN_FREE_BYTES, min(MIN_FREE_SHARE * usage.total, 10 * size)):
        fix = "Free disk space, or shorten the retention (docs/maintenance.md)."
        return CheckResult("disk", False, message, fix)
    return CheckResult("disk", True, f"{message}; the database has {_gigabytes(size)}")


async def _fetch_names(sessions: Sessions, statement: TextClause) -> Sequence[str]:
    async with sessions.without_tenant() as session:
        return (await session.scalars(statement)).all()


def _list(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - MAX_LISTED_NAMES
    text = ", ".join(shown[:MAX_LISTED_NAMES])
    return f"{text} and {rest} more" if rest > 0 else text


def _create_statement(index: Index) -> str:
    statement = str(CreateIndex(index).compile(dialect=postgresql.dialect()))
    return " ".join(statement.split())


def _gigabytes(size: int) -> str:
    return f"{size / 1024**3:.1f} GB"
