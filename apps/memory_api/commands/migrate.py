"""`hansei migrate`: the schema, and the passwords of the service's roles."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from pathlib import Path

import asyncpg
import typer
from sqlalchemy.engine import make_url

from apps.memory_api.commands.database import Urls, database
from apps.memory_api.commands.failing import Failed, one_line
from apps.memory_api.core.migrate import upgrade
from apps.memory_api.core.settings import Settings

ROLES = ("hansei_app", "hansei_worker")


def run(data_dir: Path | None, revision: str = "head") -> None:
    with one_line():
        settings = Settings.load()
        if data_dir is None and settings.owner_url is not None:
            urls = Urls(settings.database_url or "", settings.worker_url or "", settings.owner_url)
            asyncio.run(bring_up_to_date(urls, revision))
        else:
            with database(settings, data_dir) as urls:
                asyncio.run(bring_up_to_date(urls, revision))
    typer.echo(f"The database is at {revision}.")


async def bring_up_to_date(urls: Urls, revision: str = "head") -> None:
    """Migrate as the owner, then let the service's roles log in with the passwords their URLs
    have."""
    owner = urls.need_owner()
    try:
        await upgrade(owner, revision)
        if urls.embedded is None:
            await let_in(owner, (urls.app, urls.worker))
    except (OSError, asyncpg.PostgresError) as error:
        raise Failed(f"The database cannot be migrated: {error}") from error


async def let_in(owner_url: str, urls: tuple[str, ...]) -> None:
    """Give the roles named in these URLs LOGIN and their password, where they are the service's
    own."""
    connection: asyncpg.Connection = await asyncpg.connect(owner_url)
    try:
        for url in urls:
            parts = make_url(url) if url else None
            if parts is None or parts.username not in ROLES or not parts.password:
                continue
            verifier = scram_verifier(parts.password)
            await connection.execute(f"alter role {parts.username} login password '{verifier}'")
    finally:
        await connection.close()


def scram_verifier(password: str) -> str:
    """What PostgreSQL stores of a password (RFC 5803): the password itself never reaches a log.

    Passwords beyond ASCII are used as they are, without SASLprep; so do PostgreSQL's clients when
    normalising fails. ASCII is safest.
    """
    salt, rounds = os.urandom(16), 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    salt64, stored64, server64 = (
        base64.b64encode(part).decode() for part in (salt, stored_key, server_key)
    )
    return f"SCRAM-SHA-256${rounds}:{salt64}${stored64}:{server64}"
