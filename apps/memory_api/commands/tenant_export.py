"""`hansei tenant export`: all rows of a tenant as NDJSON."""

from __future__ import annotations

from pathlib import Path

import typer

from memory_api import main
from memory_api.auth import queries
from memory_api.commands.database import CommandFailed
from memory_api.commands.tenants import run_as_owner
from memory_api.core.db import Sessions
from memory_api.core.ids import to_tenant_id
from memory_api.tenants.export import export_rows

__all__ = ["export_tenant", "main"]  # `main` defines all tables, so that none is left out


def export_tenant(name: str, output: Path | None, data_dir: Path | None) -> None:
    async def export(sessions: Sessions) -> None:
        tenant_id = to_tenant_id(name)
        async with sessions.for_tenant(tenant_id) as session:
            if await queries.get_tenant(session) is None:
                raise CommandFailed(f"Tenant '{name}' not found. `hansei tenant list` lists all.")
        if output is None:
            async for line in export_rows(sessions, tenant_id):
                typer.echo(line, nl=False)
            return
        with output.open("w", encoding="utf-8") as file:
            async for line in export_rows(sessions, tenant_id):
                file.write(line)
        typer.echo(f"Wrote {output}.")

    run_as_owner(data_dir, export)
