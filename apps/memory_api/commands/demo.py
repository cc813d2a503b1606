"""`hansei demo`: loads two months of recorded history into a tenant of its own."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from hansei.cli.terminal import print_json, print_line
from hansei.credentials import DEFAULT_URL
from memory_api.commands.database import (
    CommandFailed,
    DatabaseUrls,
    exit_on_error,
    find_credentials,
    open_database,
)
from memory_api.commands.migrate import migrate_and_grant
from memory_api.commands.sql_logins import create_sql_login
from memory_api.commands.tenants import owner_sessions
from memory_api.core.db import Sessions
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.demo.console_data import load_console_data
from memory_api.demo.dates import Clock, move_times
from memory_api.demo.history import DAYS, load_desks
from memory_api.demo.load import open_loader
from memory_api.demo.tenant import create_demo_tenant, is_demo, remove_tenant

LINE_INTERVAL_SECONDS = 10.0
"""Without a terminal. A day takes seconds, so no pause between two lines is much longer."""
ABOUT = """\
What is real: the agent runs and their results, the answers of the reader that reflected and
curated in place of a model, and the two evaluations were recorded (docs/proof.md). This
installation did everything else.
What is composed: the days, the verdicts of mia@example.com, the handbook with its questions, and
the price of $3 and $15 for a million tokens read and written. In {count} runs, the agent of the
recording had a bullet more or less than this installation shows."""


def run(tenant: str, remove: bool, data_dir: Path | None, json: bool) -> None:
    with exit_on_error():
        settings = Settings.load()
        configure_logging(settings.log_format, "error")
        with open_database(settings, data_dir, create=True) as urls:
            work = _remove(urls, tenant) if remove else _load(settings, urls, tenant, json)
            uvloop.run(work)


@dataclass(frozen=True)
class CreatedDemo:
    """`other_advice_count` is that of the loader."""

    key: str
    trace_count: int
    other_advice_count: int


async def create_demo(
    settings: Settings,
    owner: Sessions,
    worker_url: str,
    name: str,
    on_day: Callable[[int], None] = lambda _day: None,
) -> CreatedDemo:
    """Create the tenant and load everything into it, or leave nothing. Raises `Conflict`."""
    desks, clock = load_desks(), Clock()
    tenant_id, key_id, key = await create_demo_tenant(owner, name)
    try:
        async with open_loader(settings, worker_url, desks, tenant_id, key_id, clock) as loader:
            await loader.load(desks, on_day)
        async with owner.for_tenant(tenant_id) as session:
            await move_times(session, clock)
            await load_console_data(session, loader.caller)
            await create_sql_login(session, console=True)
    except BaseException:
        await remove_tenant(owner, tenant_id)
        raise
    return CreatedDemo(key, len(loader.trace_ids), loader.other_advice_count)


async def _load(settings: Settings, urls: DatabaseUrls, name: str, json: bool) -> None:
    started, progress = time.monotonic(), Progress()
    if urls.embedded is not None:
        await migrate_and_grant(urls)
    async with owner_sessions(urls.require_owner()) as owner:
        made = await create_demo(settings, owner, urls.worker, name, progress.show)
    if json:
        counts = {"traces": made.trace_count, "other_advice": made.other_advice_count}
        print_json({"tenant": name, "key": made.key, **counts})
        return
    progress.show(DAYS)
    seconds = time.monotonic() - started
    url = _service_url(urls)
    about = ABOUT.format(count=made.other_advice_count)
    playbooks = " and ".join(f"{desk.playbook} ({desk.about.lower()})" for desk in load_desks())
    print_line(
        f"Loaded {made.trace_count} agent runs over {DAYS} days in {seconds:.0f} seconds:"
        f" {playbooks}.\n\n{about}\n\nAPI key of tenant {name}:\n\n  {made.key}\n\n"
        f"Use it at {url}/console, or `export HANSEI_URL={url} HANSEI_API_KEY={made.key}`.\n"
        f"`hansei demo --remove --tenant {name}` deletes the tenant."
    )


def _service_url(urls: DatabaseUrls) -> str:
    """That of `hansei up` with this data directory, otherwise the default of a service."""
    running = find_credentials(urls.embedded.data_dir) if urls.embedded is not None else None
    return running.url if running else DEFAULT_URL


async def _remove(urls: DatabaseUrls, name: str) -> None:
    tenant_id = to_tenant_id(name)
    async with owner_sessions(urls.require_owner()) as owner:
        if not await is_demo(owner, tenant_id):
            raise CommandFailed(f"Tenant {name} was not made by `hansei demo`. Nothing is removed.")
        await remove_tenant(owner, tenant_id)
    print_line(f"Removed tenant {name}.")


class Progress:
    """Counts the days on stderr: in one line of a terminal, otherwise a line every 10 seconds."""

    def __init__(self) -> None:
        self._last_at = -math.inf

    def show(self, day: int) -> None:
        text = f"day {day} of {DAYS}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text}" + ("\n" if day == DAYS else ""))
        elif (now := time.monotonic()) - self._last_at >= LINE_INTERVAL_SECONDS:
            self._last_at = now
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
