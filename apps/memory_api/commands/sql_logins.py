"""`hansei tenant sql-role`: read-only database logins for BI tools and for the SQL page of the
console, with the owner connection.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession

from hansei.cli.terminal import print_line
from memory_api.analytics.queries import (
    create_login,
    delete_sql_credential,
    drop_login,
    replace_sql_credential,
)
from memory_api.auth.queries import tenant_exists
from memory_api.commands.database import CommandFailed
from memory_api.commands.tenants import print_result, run_as_owner
from memory_api.core.db import Sessions
from memory_api.core.ids import to_tenant_id
from memory_api.tenants.audit_log import record_audit_event

SCRAM_ITERATIONS = 4096


def create_sql_role(tenant: str, data_dir: Path | None, json: bool, console: bool) -> None:
    """Create a login. With `console`, the service stores it for its SQL page in place of the
    previous one, and no password is printed.
    """

    async def create(sessions: Sessions) -> None:
        async with sessions.for_tenant(to_tenant_id(tenant)) as session:
            if not await tenant_exists(session):
                raise CommandFailed(
                    f"Tenant '{tenant}' not found. Run `hansei tenant create {tenant}`."
                )
            role, password = await create_sql_login(session, console=console)
        if console:
            text = f"The SQL page of the console now uses the login {role} for tenant '{tenant}'."
            print_result(json, {"role": role}, text)
            return
        url = make_url(sessions.engine.url).set(
            drivername="postgresql", username=role, password=password
        )
        text = url.render_as_string(hide_password=False)
        print_result(json, {"role": role, "password": password, "url": text}, text)

    run_as_owner(data_dir, create)


async def create_sql_login(session: AsyncSession, *, console: bool) -> tuple[str, str]:
    """Create a login. With `console`, store it for the SQL page in place of the previous one.
    Returns its name and password.
    """
    password = secrets.token_urlsafe(24)
    role = await create_login(session, scram_verifier(password))
    if console:
        await replace_sql_credential(session, role, password)
    used_by = {"console": True} if console else {}
    await record_audit_event(session, "sql_role.created", f"role:{role}", used_by)
    return role, password


def drop_sql_role(tenant: str, role: str, data_dir: Path | None) -> None:
    async def drop(sessions: Sessions) -> None:
        async with sessions.for_tenant(to_tenant_id(tenant)) as session:
            if not await drop_login(session, role):
                raise CommandFailed(f"Tenant '{tenant}' has no login '{role}'.")
            await delete_sql_credential(session, role)
            await record_audit_event(session, "sql_role.dropped", f"role:{role}", {})
        print_line("Deleted the login.")

    run_as_owner(data_dir, drop)


def scram_verifier(password: str) -> str:
    """What PostgreSQL stores for a password (RFC 5803), so that neither a statement nor a log
    contains it. Does not normalize non-ASCII passwords with SASLprep, so use ASCII only.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    parts = (salt, hashlib.sha256(client_key).digest(), server_key)
    encoded_salt, stored_key, encoded_server_key = (base64.b64encode(p).decode() for p in parts)
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{encoded_salt}${stored_key}:{encoded_server_key}"
