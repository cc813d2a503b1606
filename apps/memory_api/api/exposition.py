"""GET /metrics: the registry of this process, and figures of its pool, its circuit breaker and the
queue, in the text format of Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from memory_api.api.access import require_metrics_access
from memory_api.api.deps import runtime_of
from memory_api.core.db_errors import DISK_STATE, DatabaseUnavailable
from memory_api.core.metrics import collect_metrics
from memory_api.run_queue.figures import QueueFigures
from memory_api.runtime import Runtime

log = structlog.get_logger()
router = APIRouter()


@router.get("/metrics", include_in_schema=False)  # for Prometheus, not for clients of the API
async def get_metrics(request: Request) -> Response:
    """Metrics of this API process, and depth and age of the queue.

    Readable from the loopback address, or with the token of `HANSEI_METRICS_TOKEN` if that is set.
    Each process has its own metrics: scrape every API process, and every worker on its own port.
    """
    runtime = runtime_of(request)
    require_metrics_access(request, runtime.settings.metrics_token)
    return Response(await render_metrics(runtime), media_type=CONTENT_TYPE_LATEST)


class _Snapshot(CollectorRegistry):
    """The metrics of one response."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        for family in chain(collect_metrics(), self._families):
            # The creation time of each series would double the size of the response.
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


async def render_metrics(runtime: Runtime) -> bytes:
    """All metrics of this process. Without a database, those of the queue are missing and
    `hansei_database_up` is 0.
    """
    figures: Sequence[QueueFigures] | None = None
    try:
        figures = await runtime.queue_gauge.read()
    except (DatabaseUnavailable, SQLAlchemyError) as error:
        log.warning("queue_figures_missing", error=type(error).__name__)
    families = [*database_metrics(runtime, is_up=figures is not None), *breaker_metrics(runtime)]
    return generate_latest(_Snapshot([*families, *queue_metrics(figures or ())]))


def queue_metrics(figures: Sequence[QueueFigures]) -> list[Metric]:
    """The queue is shared: every process reports the same figures."""
    depth = GaugeMetricFamily(
        "hansei_queue_tickets",
        "Runs in the queue. State: due, delayed (a retry that waits) or running.",
        labels=("state",),
    )
    age = GaugeMetricFamily(
        "hansei_queue_oldest_seconds",
        "Age of the oldest run by state: since it was due, was queued or was taken.",
        labels=("state",),
    )
    for item in figures:
        depth.add_metric((item.state,), item.count)
        age.add_metric((item.state,), item.oldest_seconds)
    return [depth, age]


def database_metrics(runtime: Runtime, *, is_up: bool) -> list[Metric]:
    pool = runtime.sessions.engine.sync_engine.pool
    connections = GaugeMetricFamily(
        "hansei_database_connections",
        "Connections of this process's pool. State: used or idle.",
        labels=("state",),
    )
    size = GaugeMetricFamily(
        "hansei_database_pool_size", "Maximum connections of this process's pool."
    )
    if isinstance(pool, QueuePool):
        connections.add_metric(("used",), pool.checkedout())
        connections.add_metric(("idle",), pool.checkedin())
        size.add_metric((), pool.size())
    up = GaugeMetricFamily("hansei_database_up", "1 if the database answered, else 0.", is_up)
    full = GaugeMetricFamily(
        "hansei_database_disk_is_full",
        "1 after a statement failed because of a full disk, until a write succeeds.",
        DISK_STATE.is_full,
    )
    return [connections, size, up, full]


def breaker_metrics(runtime: Runtime) -> list[Metric]:
    is_open = GaugeMetricFamily(
        "hansei_circuit_breaker_open",
        "1 while the circuit breaker blocks calls to the model's provider, else 0.",
        labels=("provider", "model"),
    )
    retry = GaugeMetricFamily(
        "hansei_circuit_breaker_retry_seconds",
        "Seconds until the provider may be called again.",
        labels=("provider", "model"),
    )
    seconds: dict[tuple[str, str], float] = {}
    for key, breaker in runtime.circuit_breakers.items():  # several keys may use one model
        names = (key.provider, key.model)
        seconds[names] = max(seconds.get(names, 0.0), breaker.retry_in_seconds)
    for names, pause in seconds.items():
        is_open.add_metric(names, float(pause > 0))
        retry.add_metric(names, pause)
    return [is_open, retry]
