"""`hansei reembed`: moves tenants to another embedding model while they are in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hansei.cli.terminal import print_json, print_line
from memory_api.auth.queries import list_active_tenant_ids, tenant_exists
from memory_api.bootstrap import open_runtime
from memory_api.commands.database import (
    CommandFailed,
    DatabaseUrls,
    UsageError,
    exit_on_error,
    open_database,
)
from memory_api.core.errors import ConfigurationError
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.embeddings.registry import PROVIDERS, EmbedderSpec
from memory_api.maintenance import reembedding
from memory_api.runs import lifecycle
from memory_api.runs.execution import RunUnfinished, execute_step, keep_lease
from memory_api.runs.queries import get_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

POLL_INTERVAL_SECONDS = 0.5
"""Time between two polls of a run that another process executes, in seconds."""

OnProgress = Callable[[int, int], None]
"""Called with the number of finished memories and the total."""


def run(
    tenant: str | None,
    all_tenants: bool,
    provider: str | None,
    model: str | None,
    dimensions: int | None,
    base_url: str | None,
    cancel: bool,
    data_dir: Path | None,
    json: bool,
) -> None:
    target = EmbedderSpec(provider, model, dimensions, base_url) if provider else None
    with exit_on_error():
        _check_options(tenant, all_tenants, provider, cancel)
        settings = Settings.load()
        configure_logging(settings.log_format, "warning")
        with open_database(settings, data_dir) as urls:
            worker_settings = settings.model_copy(update={"owner_url": urls.owner})
            results = asyncio.run(_run(worker_settings, urls, tenant, target, cancel, json))
    if json:
        print_json(results)


def _check_options(
    tenant: str | None, all_tenants: bool, provider: str | None, cancel: bool
) -> None:
    if all_tenants == (tenant is not None):
        raise UsageError("Pass --tenant NAME or --all.")
    if not cancel and provider not in PROVIDERS:
        raise UsageError(f"Pass --provider with one of: {', '.join(PROVIDERS)}.")


async def _run(
    settings: Settings,
    urls: DatabaseUrls,
    tenant: str | None,
    spec: EmbedderSpec | None,
    cancel: bool,
    json: bool,
) -> list[dict[str, Any]]:
    async with open_runtime(settings, urls.worker, background=True) as runtime:
        names = await find_tenants(runtime, tenant)
        if spec is None or cancel:
            return [await _cancel(runtime, id_, name, json) for id_, name in names.items()]
        return [await _move(runtime, id_, name, spec, json) for id_, name in names.items()]


async def find_tenants(runtime: Runtime, tenant: str | None) -> dict[UUID, str]:
    """Return ID → displayed name. The name of a tenant is its ID with --all, because the worker
    role cannot read names.
    """
    if tenant is None:
        async with runtime.sessions.without_tenant() as session:
            names = {id_: str(id_) for id_ in await list_active_tenant_ids(session)}
        if not names:
            raise CommandFailed("No active tenant found. --all needs HANSEI_WORKER_URL.")
        return names
    tenant_id = to_tenant_id(tenant)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        if not await tenant_exists(session):
            raise CommandFailed(
                f"Tenant '{tenant}' not found. Run `hansei tenant list` to see all tenants."
            )
    return {tenant_id: tenant}


async def _cancel(runtime: Runtime, tenant_id: UUID, name: str, json: bool) -> dict[str, Any]:
    label = await reembedding.cancel_reembedding(runtime, tenant_id)
    if not json:
        result = f"cancelled the move to {label}." if label else "no move to cancel."
        print_line(f"{name}: {result}")
    return {"tenant_id": str(tenant_id), "state": "cancelled" if label else "idle", "to": label}


async def _move(
    runtime: Runtime, tenant_id: UUID, name: str, spec: EmbedderSpec, json: bool
) -> dict[str, Any]:
    try:
        run = await reembedding.start_reembedding(runtime, tenant_id, spec)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    if run is None:
        label = (await runtime.get_tenant_embedder(tenant_id)).model
        if not json:
            print_line(f"{name}: already uses {label}.")
        return {"tenant_id": str(tenant_id), "state": "unchanged", "to": label}
    with _progress_bar(json, name) as on_progress:
        await _execute_or_follow(runtime, run, on_progress)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        finished = await get_run(session, run.id)
    assert finished is not None
    result: dict[str, Any] = finished.result
    if not json:
        print_line(
            f"{name}: moved {result['done']} memories to {result['to']}. The worker deletes the"
            f" vectors of {result['from']} in a few minutes."
        )
    return {"tenant_id": str(tenant_id), "run_id": str(run.id), "state": finished.state, **result}


async def _execute_or_follow(runtime: Runtime, run: RunRow, on_progress: OnProgress) -> None:
    """Execute the run, or wait while another process executes it. Raises `CommandFailed` if it
    fails.
    """
    holder = runtime.new_lease_holder()
    while True:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            claim = await lifecycle.claim_run(session, run.id, holder, runtime.lease_duration)
        if claim.run is not None and await _execute(runtime, claim.run, on_progress):
            return
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            current = await get_run(session, run.id)
        if current is None or current.state in ("failed", "dead"):
            raise CommandFailed(f"The move of {run.tenant_id} failed: {_error_message(current)}")
        if current.result:
            on_progress(current.result["done"], current.result["total"])
        if current.state == "done":
            return
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


def _error_message(run: RunRow | None) -> str:
    error: dict[str, str] = (run.error if run else None) or {}
    return error.get("message", "its run was deleted")


async def _execute(runtime: Runtime, run: RunRow, on_progress: OnProgress) -> bool:
    """Whether the run is done. Records a failure in the run. A worker or the same command can then
    continue the run.
    """
    step = reembedding.ReembedStep(on_progress=on_progress)
    try:
        async with keep_lease(runtime.sessions, run, runtime.lease_duration):
            await execute_step(runtime, run, step)
        return True
    except RunUnfinished as error:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            await lifecycle.postpone_run(session, run, error, timedelta())
        return False
    except lifecycle.LeaseLost as error:
        raise CommandFailed(
            "The move was cancelled, or another process has taken it over."
        ) from error
    except Exception as error:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            await lifecycle.record_failure(session, run, error)
        raise CommandFailed(
            f"The move of {run.tenant_id} stopped: {error}. Its progress is saved."
            " Run the same command to continue."
        ) from error


@contextmanager
def _progress_bar(json: bool, description: str) -> Generator[OnProgress]:
    """A progress bar on standard error, if this is a terminal and the output is not JSON."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),  # fills the line
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=json or not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
