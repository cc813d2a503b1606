"""`hansei reembed`: move tenants to another embedding model while they are in use."""

from __future__ import annotations

import asyncio
import json as jsonlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from apps.memory_api.commands.database import Urls, database
from apps.memory_api.commands.failing import Failed, WrongUsage, one_line
from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.settings import Settings
from apps.memory_api.core.telemetry import configure
from apps.memory_api.embeddings.loaded import Spec
from apps.memory_api.embeddings.registry import PROVIDERS
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.lease import held
from apps.memory_api.jobs.queries import get_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.runtime import Runtime, open_runtime
from apps.memory_api.tenants.identity import tenant_id_of
from apps.memory_api.tenants.queries import active_tenants, is_tenant
from apps.memory_api.workers import reembed

LOOK = 0.5
"""Seconds between two looks at a run that another process does."""

Show = Callable[[int, int], None]


def run(
    tenant: str | None,
    every: bool,
    provider: str | None,
    model: str | None,
    dimensions: int | None,
    base_url: str | None,
    cancel: bool,
    data_dir: Path | None,
    json: bool,
) -> None:
    """Move one tenant or every one; `cancel` stops a move instead."""
    target = Spec(provider, model, dimensions, base_url) if provider else None
    with one_line():
        _check_options(tenant, every, provider, cancel)
        settings = Settings.load()
        configure(settings.log_format, "warning")
        with database(settings, data_dir) as urls:
            known = settings.model_copy(update={"owner_url": urls.owner})
            done = asyncio.run(_run(known, urls, tenant, target, cancel, json))
    if json:
        typer.echo(jsonlib.dumps(done, ensure_ascii=False))


def _check_options(tenant: str | None, every: bool, provider: str | None, cancel: bool) -> None:
    if every == (tenant is not None):
        raise WrongUsage("Say --tenant NAME, or --all.")
    if not cancel and provider not in PROVIDERS:
        raise WrongUsage(f"Say where to with --provider: {', '.join(PROVIDERS)}.")


async def _run(
    settings: Settings,
    urls: Urls,
    tenant: str | None,
    spec: Spec | None,
    cancel: bool,
    json: bool,
) -> list[dict[str, Any]]:
    async with open_runtime(settings, urls.worker, background=True) as runtime:
        tenants = await _tenants(runtime, tenant)
        if spec is None or cancel:
            return [await _cancel(runtime, one, name, json) for one, name in tenants.items()]
        return [await _move(runtime, one, name, spec, json) for one, name in tenants.items()]


async def _tenants(runtime: Runtime, tenant: str | None) -> dict[UUID, str]:
    """Which ones, and what each is called to the person: a worker may read no names."""
    if tenant is None:
        async with runtime.sessions.shared() as session:
            found = {one: str(one) for one in await active_tenants(session)}
        if not found:
            raise Failed("No tenant is seen; --all needs HANSEI_WORKER_URL.")
        return found
    tenant_id = tenant_id_of(tenant)
    async with runtime.sessions.tenant(tenant_id) as session:
        if not await is_tenant(session):
            raise Failed(f"There is no tenant '{tenant}'.")
    return {tenant_id: tenant}


async def _cancel(runtime: Runtime, tenant_id: UUID, name: str, json: bool) -> dict[str, Any]:
    label = await reembed.cancel(runtime, tenant_id)
    if not json:
        typer.echo(f"{name}: " + (f"no longer moves to {label}." if label else "is not moving."))
    return {"tenant_id": str(tenant_id), "state": "cancelled" if label else "idle", "to": label}


async def _move(
    runtime: Runtime, tenant_id: UUID, name: str, spec: Spec, json: bool
) -> dict[str, Any]:
    try:
        run = await reembed.start(runtime, tenant_id, spec)
    except ValueError as error:
        raise Misconfigured(str(error)) from error
    if run is None:
        label = (await runtime.embedder_of(tenant_id)).model
        if not json:
            typer.echo(f"{name}: is at {label} already.")
        return {"tenant_id": str(tenant_id), "state": "there", "to": label}
    with _bar(json, name) as show:
        await _finish(runtime, run, show)
    async with runtime.sessions.tenant(tenant_id) as session:
        ended = await get_run(session, run.id)
    assert ended is not None
    result: dict[str, Any] = ended.result
    if not json:
        typer.echo(
            f"{name}: {result['done']} memories are served by {result['to']} now; "
            f"upkeep removes the vectors of {result['from']} in some minutes."
        )
    return {"tenant_id": str(tenant_id), "run_id": str(run.id), "state": ended.state, **result}


async def _finish(runtime: Runtime, run: Run, show: Show) -> None:
    """Do the run, or look on while another process does it. Raises `Failed` when it fails."""
    owner = runtime.new_holder()
    while True:
        async with runtime.sessions.tenant(run.tenant_id) as session:
            claim = await runs.claim(session, run.id, owner, runtime.lease)
        if claim.run is not None:
            await _do(runtime, claim.run, show)
            return
        async with runtime.sessions.tenant(run.tenant_id) as session:
            now = await get_run(session, run.id)
        if now is None or now.state in ("failed", "dead"):
            raise Failed(f"The move of {run.tenant_id} failed: {_cause(now)}")
        if now.result:
            show(now.result["done"], now.result["total"])
        if now.state == "done":
            return
        await asyncio.sleep(LOOK)


def _cause(run: Run | None) -> str:
    error: dict[str, str] = (run.error if run else None) or {}
    return error.get("message", "its run is gone")


async def _do(runtime: Runtime, run: Run, show: Show) -> None:
    """A failure is recorded, and a worker tries again; so does the same command."""
    try:
        async with held(runtime.sessions, run, runtime.lease):
            await reembed.run(runtime, run, progress=show)
    except runs.LeaseLost as error:
        raise Failed("The move was cancelled, or another process has taken it over.") from error
    except Exception as error:
        async with runtime.sessions.tenant(run.tenant_id) as session:
            await runs.fail(session, run, error)
        raise Failed(
            f"The move of {run.tenant_id} stopped: {error}"
            " (what was done is kept: run the same command to go on)"
        ) from error


@contextmanager
def _bar(json: bool, what: str) -> Generator[Show]:
    """A progress bar on standard error where a person looks on."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),  # what is left of the line
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=json or not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
