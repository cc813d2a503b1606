"""The metrics of this process, in the registry that `GET /metrics` shows.

Each process has its own registry and is scraped alone (docs/decisions/observability.md). Labels
have few values: route templates, kinds of runs, configured model names. No label is a tenant, an ID
or a path. Figures of the database are in `api/exposition.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import psutil
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import (
    MultiProcessCollector,
    mark_process_dead,  # pyright: ignore[reportUnknownVariableType]
)
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry(auto_describe=True)
"""Not prometheus_client's global registry: that one belongs to the program that imports Hansei."""

FAST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds in seconds, for requests and searches."""
SLOW_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
"""Upper bounds in seconds, for runs and model calls."""

ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

HTTP_REQUESTS = Counter(
    "hansei_http_requests", "Requests by route.", ("method", "route", "status"), registry=REGISTRY
)
HTTP_DURATION = Histogram(
    "hansei_http_request_duration_seconds",
    "Time until the response was sent.",
    ("method", "route"),
    buckets=FAST_BUCKETS,
    registry=REGISTRY,
)
HTTP_IN_PROGRESS = Gauge(
    "hansei_http_requests_in_progress",
    "Requests that are being answered.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
SEARCH_DURATION = Histogram(
    "hansei_search_duration_seconds",
    "Time of one search: embedding of the query and statement.",
    buckets=FAST_BUCKETS,
    registry=REGISTRY,
)
RENDER_DURATION = Histogram(
    "hansei_render_duration_seconds",
    "Time of one render, its search included.",
    buckets=FAST_BUCKETS,
    registry=REGISTRY,
)
RUNS = Counter(
    "hansei_runs",
    "Executed attempts of runs. Result: done, retried, postponed, failed, dead or lease_lost.",
    ("kind", "result"),
    registry=REGISTRY,
)
RUN_DURATION = Histogram(
    "hansei_run_duration_seconds",
    "Time of one attempt of a run.",
    ("kind",),
    buckets=SLOW_BUCKETS,
    registry=REGISTRY,
)
LEASE_LOSSES = Counter(
    "hansei_lease_losses", "Runs that another worker took over.", registry=REGISTRY
)
LLM_CALLS = Counter(
    "hansei_llm_calls",
    "Calls to models, each attempt. Result: ok or the code of the error.",
    ("provider", "model", "purpose", "result"),
    registry=REGISTRY,
)
LLM_DURATION = Histogram(
    "hansei_llm_call_duration_seconds",
    "Time of one model call.",
    ("provider", "model"),
    buckets=SLOW_BUCKETS,
    registry=REGISTRY,
)
LLM_TOKENS = Counter(
    "hansei_llm_tokens",
    "Tokens of model calls. Direction: input, cached (part of input) or output.",
    ("provider", "model", "purpose", "direction"),
    registry=REGISTRY,
)
LLM_COST = Counter(
    "hansei_llm_cost_usd",
    "Price of model calls in US dollars, where it is known.",
    ("provider", "model", "purpose"),
    registry=REGISTRY,
)
LLM_UNPRICED = Counter(
    "hansei_llm_unpriced_calls",
    "Answered model calls without a known price.",
    ("provider", "model"),
    registry=REGISTRY,
)
BUDGET_REFUSALS = Counter(
    "hansei_budget_refusals",
    "Model calls that a budget did not allow, by error code.",
    ("code",),
    registry=REGISTRY,
)
REFLECTIONS = Counter(
    "hansei_reflections",
    "Reflections. Result: stored, already_known, nothing_found or failed.",
    ("kind", "engine", "result"),
    registry=REGISTRY,
)
VERDICTS = Counter(
    "hansei_verdicts",
    "Recorded verdicts. Counted: whether the counters of the bullet include it.",
    ("judge", "tag", "counted"),
    registry=REGISTRY,
)
DISK_FULL = Counter(
    "hansei_database_disk_full",
    "Statements that failed because the disk of the database is full.",
    registry=REGISTRY,
)


class BudgetLevels(Collector):
    """The lowest share of a budget that is left, per period, over the tenants whose budgets this
    process has checked. A share counts until its period ends.
    """

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._levels: dict[tuple[UUID, str], tuple[float, datetime]] = {}

    def record(self, tenant_id: UUID, period: str, left: float, ends_at: datetime) -> None:
        """`left` is the share of the limit that is left, 0 to 1."""
        self._levels[tenant_id, period] = (left, ends_at)

    def collect(self) -> Iterator[Metric]:
        now = self._clock()
        self._levels = {key: level for key, level in self._levels.items() if level[1] > now}
        family = GaugeMetricFamily(
            "hansei_budget_left_ratio",
            "Lowest share of a tenant's budget that is left, 0 to 1.",
            labels=("period",),
        )
        for period in sorted({period for _, period in self._levels}):
            shares = [level[0] for key, level in self._levels.items() if key[1] == period]
            family.add_metric((period,), min(shares))
        yield family


BUDGET_LEVELS = BudgetLevels()
REGISTRY.register(BUDGET_LEVELS)


def collect_metrics() -> Iterator[Metric]:
    """The metrics of this process; or the sums of the API processes that share a port
    (`hansei serve --processes`), without the figures of Python and of the operating system, which
    have no sum.
    """
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder is None:
        yield from REGISTRY.collect()
        return
    for file in Path(folder).glob("gauge_live*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not psutil.pid_exists(pid):
            mark_process_dead(pid, folder)
    yield from MultiProcessCollector(CollectorRegistry(), folder).collect()
    yield from BUDGET_LEVELS.collect()


@contextmanager
def observe_duration(histogram: Histogram) -> Generator[None]:
    """Observe the seconds of the block, also if it raises."""
    started = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - started)


def count_request(method: str, route: str, status: int, seconds: float) -> None:
    """Count a request. `route` is the template of the path."""
    HTTP_REQUESTS.labels(method, route, str(status)).inc()
    HTTP_DURATION.labels(method, route).observe(seconds)


def count_llm_reply(
    provider: str,
    model: str,
    purpose: str,
    *,
    tokens: Mapping[str, int],
    usd: Decimal | None,
) -> None:
    """Count the tokens, by direction, and the price of an answered call. `usd` is None for an
    unknown price.
    """
    for direction, count in tokens.items():
        LLM_TOKENS.labels(provider, model, purpose, direction).inc(count)
    if usd is None:
        LLM_UNPRICED.labels(provider, model).inc()
    else:
        LLM_COST.labels(provider, model, purpose).inc(float(usd))
