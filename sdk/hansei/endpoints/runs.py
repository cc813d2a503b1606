"""Requests about runs and about the health of the service."""

from __future__ import annotations

from collections.abc import Sequence

from hansei._request import (
    API,
    MAX_PAGE_SIZE,
    Id,
    Request,
    api_path,
    get_request,
    write_request,
)
from hansei.types import Json, Page, Run


def get_health() -> Request[Json]:
    """Check that the process is alive."""
    return get_request("/health")


def get_readiness() -> Request[Json]:
    """Check that the service can work: its database, queue, embedder and model."""
    return Request("GET", "/health/ready", accepted_status=503)


def list_runs(
    *,
    state: Sequence[str] = (),
    kind: str | None = None,
    project_id: str | None = None,
    trace_id: Id | None = None,
    parent_id: Id | None = None,
    limit: int = MAX_PAGE_SIZE,
) -> Request[Page[Run]]:
    """List runs, newest first.

    `state=["dead"]` lists the dead letters with their errors. `parent_id` lists the runs that
    followed a run. `limit` is the page size.
    """
    return get_request(
        f"{API}/runs",
        state=list(state),
        kind=kind,
        project_id=project_id,
        trace_id=trace_id,
        parent_id=parent_id,
        limit=limit,
    )


def get_run(run_id: Id) -> Request[Run]:
    """Get a run."""
    return get_request(api_path("runs", run_id))


def retry_run(run_id: Id) -> Request[Run]:
    """Queue a dead or failed run again."""
    return write_request("POST", api_path("runs", run_id, "retry"))
