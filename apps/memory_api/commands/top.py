"""`hansei top`: whether agents get better, and a live view of the queue, runs, model calls, cost
and the slowest routes.

It reads `/metrics` of the processes and asks the API, so it needs no access to the database.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hansei.cli.terminal import print_json, sanitize
from hansei.client import Hansei
from hansei.credentials import (
    FILE_NAME,
    Credentials,
    is_chosen_by_user,
    load_credentials,
    resolve_credentials,
)
from hansei.errors import ConfigurationError, HanseiError
from memory_api.analytics.improvement import improvement_of
from memory_api.commands.database import CommandFailed, exit_on_error
from memory_api.commands.scrape import Scrape, scrape_all
from memory_api.core.settings import Settings

QUESTION = "Do agents get better?"
SLOWEST_ROUTE_COUNT = 8
MAX_WAIT_SECONDS = 60
"""A run that has been due for longer is a problem."""
QUEUE_STATES = ("due", "delayed", "running")
RUN_RESULTS = ("done", "retried", "postponed", "failed", "dead", "lease_lost")


def run(
    urls: Sequence[str],
    token: str | None,
    interval: float,
    once: bool,
    data_dir: Path | None,
    json: bool,
) -> None:
    with exit_on_error():
        settings = Settings.load()
        is_chosen = bool(urls) or data_dir is not None or is_chosen_by_user()
        if token is None and settings.metrics_token is not None and is_chosen:
            token = settings.metrics_token.get_secret_value()
        try:
            service = _find_service(data_dir)
        except ConfigurationError as error:
            if not urls:
                raise CommandFailed(str(error)) from error
            answer = f"Unknown: {error}"
        else:
            urls = urls or _default_urls(settings, service, token)
            answer = _describe_improvement(service)
        targets = [_metrics_url(url) for url in urls]
        first = _scrape(targets, token)
        if json:
            figures = {"improvement": f"{QUESTION} {answer}", "urls": targets} | to_figures(first)
            print_json(figures)
            return
        header = f"{QUESTION} {answer}\nMetrics: {', '.join(targets)}"
        if once:
            Console(highlight=False).print(_text(header), render_view(first), sep="\n")
            return
        _show_live(targets, token, interval, first, header)


def _find_service(data_dir: Path | None) -> Credentials:
    """The service of the data directory, otherwise the one that every other command uses. Raises
    `ConfigurationError`.
    """
    if data_dir is None:
        return resolve_credentials()
    service = load_credentials(data_dir)
    if service is None:
        raise ConfigurationError(f"No {FILE_NAME} in {data_dir}. Run `hansei up` with it first.")
    return service


def _default_urls(settings: Settings, service: Credentials, token: str | None) -> Sequence[str]:
    """The API and, if its port is known, the worker."""
    worker = service.worker_metrics_url
    if worker is None and token is None:  # the file may come with a cloned repository
        worker = _stored_worker(service.url)
    if settings.worker_metrics_port is not None:
        worker = f"http://127.0.0.1:{settings.worker_metrics_port}"
    return [service.url] if worker is None else [service.url, worker]


def _stored_worker(url: str) -> str | None:
    """The worker in the credentials file of this service, for a service that HANSEI_URL and
    HANSEI_API_KEY name. No command reads the file then, so a damaged one is no error.
    """
    with suppress(ConfigurationError):
        stored = load_credentials()
        return stored.worker_metrics_url if stored and stored.url == url else None
    return None


def _describe_improvement(service: Credentials) -> str:
    """The answer to `QUESTION`, of the last weeks, in the project of the API key."""
    if service.api_key is None:
        return f"Unknown: no API key for {service.url}. Set HANSEI_API_KEY."
    try:
        with Hansei(service.url, service.api_key, timeout=10, max_retries=0) as client:
            answer = client.analytics.get("improvement")
    except (HanseiError, OSError) as error:
        return f"Unknown: {service.url} gave no figures. {error}"
    improvement = improvement_of(answer.rows, 0.0)
    if improvement.total is None:
        return "Unknown: no agent run with an outcome."
    total, name = improvement.total, improvement.answer
    weeks = [f"{row['week'][5:]} {row['rate']:.0%}" for row in improvement.weeks[-4:]]
    by_week = f"Success by week: {', '.join(weeks)}."
    if name in ("no_runs", "no_holdout"):
        hint = "Set HANSEI_ADVICE_HOLDOUT_SHARE to compare runs with and without advice."
        return f"Unknown: no hold-out. {by_week} {hint}"
    if name == "more_runs":
        missing = f"about {improvement.missing_runs:,} more"
        return f"Not enough runs yet: {missing}. {by_week}"
    words = {"better": "Yes", "worse": "No, advice does harm", "same": "No difference of 10 points"}
    return (
        f"{words[name]}: {total['with_rate']:.0%} of the runs succeed with "
        f"advice, {total['without_rate']:.0%} without it (95 % interval of the difference "
        f"{total['low']:+.0%} to {total['high']:+.0%}). {by_week}"
    )


def _metrics_url(url: str) -> str:
    base = url if "://" in url else f"http://{url}"
    return base if base.endswith("/metrics") else f"{base.rstrip('/')}/metrics"


def _scrape(urls: Sequence[str], token: str | None) -> Scrape:
    """Raises `CommandFailed` if no process answers."""
    scrape = scrape_all(urls, token)
    if not scrape.samples:
        problems = "; ".join(f"{url}: {reason}" for url, reason in scrape.errors.items())
        raise CommandFailed(
            f"No metrics: {problems}. Check that `hansei up` is running or --url is right, and"
            " pass --token if HANSEI_METRICS_TOKEN is set."
        )
    return scrape


def _show_live(
    urls: Sequence[str], token: str | None, interval: float, first: Scrape, header: str
) -> None:
    """Refresh until Ctrl-C. Figures of a period are those since the last refresh."""
    try:
        with Live(
            Group(_text(header), render_view(first)), screen=True, auto_refresh=False
        ) as live:
            earlier, earlier_at = first, time.monotonic()
            while True:
                time.sleep(interval)
                current, now = scrape_all(urls, token), time.monotonic()
                view = render_view(current, current.minus(earlier), now - earlier_at)
                live.update(Group(_text(header), view), refresh=True)
                earlier, earlier_at = current, now
    except KeyboardInterrupt:
        return


def to_figures(scrape: Scrape) -> dict[str, Any]:
    """The figures of the view, since each process started."""
    return {
        "queue": {
            state: {
                "tickets": int(scrape.value("hansei_queue_tickets", state=state)),
                "oldest_seconds": round(
                    scrape.value("hansei_queue_oldest_seconds", state=state), 1
                ),
            }
            for state in QUEUE_STATES
        },
        "runs": {
            kind: {
                result: int(scrape.value("hansei_runs_total", kind=kind, result=result))
                for result in RUN_RESULTS
            }
            for kind in sorted(scrape.by_label("hansei_runs_total", "kind"))
        },
        "models": {
            model: {
                "calls": int(scrape.value("hansei_llm_calls_total", model=model)),
                "failed": int(
                    scrape.value("hansei_llm_calls_total", model=model)
                    - scrape.value("hansei_llm_calls_total", model=model, result="ok")
                ),
                "tokens": int(
                    scrape.value("hansei_llm_tokens_total", model=model, direction="input")
                    + scrape.value("hansei_llm_tokens_total", model=model, direction="output")
                ),
                "usd": round(scrape.value("hansei_llm_cost_usd_total", model=model), 6),
            }
            for model in sorted(scrape.by_label("hansei_llm_calls_total", "model"))
        },
        "routes": _slowest_routes(scrape),
        "errors": dict(scrape.errors),
    }


def _slowest_routes(scrape: Scrape) -> list[dict[str, Any]]:
    """The routes with the longest mean time."""
    name = "hansei_http_request_duration_seconds"
    routes = [
        {
            "route": f"{method} {route}",
            "requests": int(count),
            "mean_ms": round(
                1000 * scrape.value(f"{name}_sum", method=method, route=route) / count, 1
            ),
            "p95_ms": round(
                1000 * (scrape.quantile(name, 0.95, method=method, route=route) or 0.0), 1
            ),
        }
        for method in scrape.by_label(f"{name}_count", "method")
        for route, count in scrape.by_label(f"{name}_count", "route", method=method).items()
        if count
    ]
    routes.sort(key=lambda route: route["mean_ms"], reverse=True)
    return routes[:SLOWEST_ROUTE_COUNT]


def _text(text: str, style: str = "") -> Text:
    """Text of a service, which does not control the terminal."""
    return Text(sanitize(text), style=style)


def describe_state(now: dict[str, Any], counted: dict[str, Any]) -> Text:
    """Whether something is wrong: with the queue now, or with the work that `counted` has."""
    oldest = now["queue"]["due"]["oldest_seconds"]
    dead = sum(results["dead"] for results in counted["runs"].values())
    failed = sum(model["failed"] for model in counted["models"].values())
    problems = [f"a run has waited for {oldest:,.0f} s"] if oldest > MAX_WAIT_SECONDS else []
    problems += [f"{dead:,} runs failed on every attempt"] if dead else []
    problems += [f"{failed:,} model calls failed"] if failed else []
    problems += [f"{len(now['errors'])} processes do not answer"] if now["errors"] else []
    if problems:
        return Text(f"Bad: {'; '.join(problems)}.", "red")
    return Text("Good: no run is dead or waits for a minute, no model call failed.", "green")


def render_view(
    scrape: Scrape, period: Scrape | None = None, seconds: float | None = None
) -> RenderableType:
    """The view of one moment. `period` has the increase of the last `seconds`; without it, figures
    are since the start of each process.
    """
    counted = scrape if period is None else period
    since = "since start" if seconds is None else f"in the last {seconds:.0f} s"
    figures = to_figures(counted)
    queue = Table("queue", "tickets", "oldest", title="Queue", title_justify="left")
    now = to_figures(scrape)
    for state, item in now["queue"].items():
        queue.add_row(state, f"{item['tickets']:,}", f"{item['oldest_seconds']:,.1f} s")
    runs = Table("kind", *RUN_RESULTS, title=f"Runs, {since}", title_justify="left")
    for kind, results in figures["runs"].items():
        runs.add_row(_text(kind), *(f"{results[result]:,}" for result in RUN_RESULTS))
    models = Table(
        *("model", "calls", "failed", "tokens", "US dollars"),
        title=f"Model calls, {since}",
        title_justify="left",
    )
    for model, item in figures["models"].items():
        usd = f"{item['usd']:.4f}"
        models.add_row(
            _text(model), *(f"{item[key]:,}" for key in ("calls", "failed", "tokens")), usd
        )
    routes = Table(
        *("route", "requests", "mean", "p95 up to"),
        title=f"Slowest routes, {since}",
        title_justify="left",
    )
    for item in figures["routes"]:
        routes.add_row(
            _text(item["route"]),
            f"{item['requests']:,}",
            f"{item['mean_ms']:,.1f} ms",
            f"{item['p95_ms']:,.1f} ms",
        )
    notes = [_text(f"{url}: {reason}", "red") for url, reason in scrape.errors.items()]
    if not scrape.by_label("hansei_runs_total", "kind"):
        hint = "To ask a worker, pass its --url or set HANSEI_WORKER_METRICS_PORT."
        notes.append(Text(f"These processes have done no run since they started. {hint}"))
    tables = [table for table in (queue, runs, models, routes) if table.row_count]
    return Group(describe_state(now, figures), *tables, *notes)
