"""`hansei reembed`: moves tenants to another embedding model while they are in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hansei.cli.terminal import print_json, print_line
from memory_api.bootstrap import open_runtime
from memory_api.commands.database import (
    DatabaseUrls,
    UsageError,
    exit_on_error,
    open_database,
)
from memory_api.commands.tenant_runs import execute_here, find_tenants
from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.embeddings.registry import PROVIDERS, EmbedderSpec
from memory_api.maintenance import reembedding
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime


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
    with _progress_bar(json, name) as on_poll:
        finished = await execute_here(runtime, run, f"The move of {name}", on_poll)
    result: dict[str, Any] = finished.result
    if not json:
        print_line(
            f"{name}: moved {result['done']} memories to {result['to']}. The worker deletes the"
            f" vectors of {result['from']} in a few minutes."
        )
    return {"tenant_id": str(tenant_id), "run_id": str(run.id), "state": finished.state, **result}


@contextmanager
def _progress_bar(json: bool, description: str) -> Generator[Callable[[RunRow], None]]:
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

        def show(run: RunRow) -> None:
            if run.result:
                bar.update(task, completed=run.result["done"], total=run.result["total"])

        yield show
