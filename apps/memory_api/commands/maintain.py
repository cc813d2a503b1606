"""`hansei maintain`: runs a maintenance task now, for one tenant or all."""

from __future__ import annotations

import asyncio
import json as jsonlib
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from hansei.cli.terminal import print_json, print_line
from memory_api.auth.queries import is_tenant_active
from memory_api.bootstrap import open_runtime
from memory_api.commands.database import (
    CommandFailed,
    UsageError,
    exit_on_error,
    open_database,
)
from memory_api.commands.tenant_runs import execute_here, find_tenants
from memory_api.core.errors import field_problem
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api.maintenance.schedule import start_task
from memory_api.maintenance.schemas import MaintenanceTaskName, StartMaintenanceRequest
from memory_api.runtime import Runtime


def run(
    task: str,
    tenant: str | None,
    all_tenants: bool,
    apply: bool,
    traces: list[str],
    sessions: list[str],
    interval: float | None,
    data_dir: Path | None,
    json: bool,
) -> None:
    with exit_on_error():
        name = _parse_task(task)
        if all_tenants == (tenant is not None):
            raise UsageError("Pass --tenant NAME or --all.")
        request = _parse_options(apply, traces, sessions)
        if all_tenants and (traces or sessions):
            raise UsageError("--trace and --session belong to one tenant. Pass --tenant NAME.")
        settings = Settings.load()
        configure_logging(settings.log_format, "warning")
        with open_database(settings, data_dir) as urls:
            worker_settings = settings.model_copy(update={"owner_url": urls.owner})
            while True:
                started = time.monotonic()
                results = asyncio.run(_run(worker_settings, urls.worker, name, tenant, request))
                _print(results, json)
                if interval is None:
                    break
                time.sleep(max(0.0, interval - (time.monotonic() - started)))


def _parse_task(text: str) -> MaintenanceTaskName:
    try:
        return MaintenanceTaskName(text)
    except ValueError:
        names = ", ".join(MaintenanceTaskName)
        raise UsageError(f"Unknown task '{text}'. The tasks are: {names}.") from None


def _parse_options(apply: bool, traces: list[str], sessions: list[str]) -> StartMaintenanceRequest:
    try:
        return StartMaintenanceRequest.model_validate(
            {"apply": apply, "trace_ids": traces, "session_ids": sessions}
        )
    except ValidationError as error:
        raise UsageError(str(field_problem(error.errors()[0]))) from None


async def _run(
    settings: Settings,
    url: str,
    name: MaintenanceTaskName,
    tenant: str | None,
    request: StartMaintenanceRequest,
) -> list[dict[str, Any]]:
    async with open_runtime(settings, url, background=True) as runtime:
        tenants = await find_tenants(runtime, tenant)
        return [
            await _run_for_tenant(runtime, tenant_id, label, name, request)
            for tenant_id, label in tenants.items()
        ]


async def _run_for_tenant(
    runtime: Runtime,
    tenant_id: UUID,
    label: str,
    name: MaintenanceTaskName,
    request: StartMaintenanceRequest,
) -> dict[str, Any]:
    """Queue a run and execute it here, unless a worker is faster. Raises `CommandFailed`, also for
    a suspended tenant, whose run would wait.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        if not await is_tenant_active(session):
            raise CommandFailed(
                f"Tenant '{label}' is not active. `hansei tenant list` shows its status, and"
                " `hansei tenant resume` ends a suspension."
            )
        run = await start_task(runtime, session, name, request)
    done = await execute_here(runtime, run, f"{name} of {label}")
    return {"tenant": label, "run_id": str(run.id), "result": done.result}


def _print(results: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(results)
        return
    for item in results:
        figures = ", ".join(f"{name}: {_short(value)}" for name, value in item["result"].items())
        print_line(f"{item['tenant']}: {figures or 'nothing to do'}")


def _short(value: Any) -> str:
    return jsonlib.dumps(value, ensure_ascii=False)[:100]
