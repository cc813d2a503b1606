"""Requests about maintenance tasks."""

from __future__ import annotations

from typing import Literal, TypedDict

from hansei._request import API, Request, api_path, get_request, write_request
from hansei.types import Page, Run

MaintenanceTaskName = Literal["upkeep", "indexes"]


class MaintenanceSchedule(TypedDict):
    """A maintenance task of your tenant."""

    task: MaintenanceTaskName
    period: str
    is_scheduled: bool
    started_at: str | None
    next_at: str | None


def list_maintenance_tasks() -> Request[Page[MaintenanceSchedule]]:
    """List the maintenance tasks of your tenant with their latest start."""
    return get_request(f"{API}/maintenance")


def start_maintenance(task: MaintenanceTaskName, *, apply: bool = False) -> Request[Run]:
    """Queue a maintenance task now. `apply` lets `pruning` archive what its report lists."""
    return write_request("POST", api_path("maintenance", task), {"apply": apply})
