"""`hansei tenant export`: all rows of a tenant as NDJSON."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from hansei.cli.terminal import print_document, print_line
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
                print_document(line)
            return
        await _write_private(output, export_rows(sessions, tenant_id))
        print_line(f"Wrote {output}.")

    run_as_owner(data_dir, export)


async def _write_private(path: Path, lines: AsyncIterator[str]) -> None:
    """Write a file that only this user can read. It replaces what has this name when it is
    complete; a link is not followed. Raises `CommandFailed`.
    """
    draft: str | None = None
    try:
        descriptor, draft = _create_draft(path)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            async for line in lines:
                file.write(line)
        os.replace(draft, path)
    except BaseException as error:
        if draft is not None:
            os.unlink(draft)
        if isinstance(error, OSError):
            raise CommandFailed(f"{path} cannot be written: {error.strerror}.") from error
        raise


def _create_draft(path: Path) -> tuple[int, str]:
    """The descriptor and name of a new file of mode 0600 next to `path`. Raises `OSError`, and
    `CommandFailed` if `path` is a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():
        raise CommandFailed(f"{path} is not a file. Without --output, the rows are printed.")
    return tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
