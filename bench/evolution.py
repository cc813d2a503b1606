"""Two months of a playbook, for looking at it: `python -m bench evolution [--traces N] [--hold]`.

Loads real traces in time order, spread over 60 days. All times of the rows are those of the clocks
of PostgreSQL, the API and the worker: libfaketime (Debian package `libfaketime`) moves them forward
from trace to trace, and no row is written by hand. Before each trace, the
agent renders the playbook. It cites two of the bullets, the trace is learned from (a stub stands in
for the model), and a person judges the cited bullets. After 30 days, the bullet that was served
most starts to harm.

Then the bench asks the questions that lead from a bad month to the harmful bullet, its author, its
run and its cost, and prints the answers. With `--hold`, the service runs until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import glob
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.ingest import new_tenant, real_traces
from bench.model_stub import ModelStub, asks
from bench.server import api, measured_server, worker
from hansei import Hansei
from hansei.errors import NotFoundError
from memory_api.embedded import cluster
from tests.support.stub_provider import StubProvider

DAYS = 60
PLAYBOOK = "support"
SENT = ("task_description", "task_goal", "outcome", "events")
"""The fields of a recorded trace that its agent sends."""
LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"


class MovedClock:
    """The clock of the service: real time less an offset that shrinks to 0."""

    def __init__(self, folder: Path, library: str) -> None:
        self.file = folder / "offset"
        self.settings = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        """Environment variables of a process with this clock."""
        self.set(DAYS * 86_400.0)
        folder.chmod(0o755)

    def set(self, seconds_ago: float) -> None:
        self.file.write_text(f"-{seconds_ago:.0f}\n")
        self.file.chmod(0o644)

    @contextmanager
    def of_server(self) -> Iterator[None]:
        """The embedded server that starts meanwhile has this clock."""
        launch = cluster.launch
        settings = [f"{name}={value}" for name, value in self.settings.items()]

        def launch_with_clock(command: Any, *args: Any, **options: Any) -> Any:
            return launch(["/usr/bin/env", *settings, *command], *args, **options)

        cluster.launch = launch_with_clock
        try:
            yield
        finally:
            cluster.launch = launch


def load(client: Hansei, clock: MovedClock, count: int) -> str:
    """Loads `count` traces; the key of the harmful bullet. If there are fewer traces, each is sent
    several times, as attempts at its task.
    """
    chance = random.Random(5)
    client.playbooks.update(PLAYBOOK, token_budget=1_000)
    served: Counter[str] = Counter()
    harmful = ""
    for number, trace in enumerate(islice(cycle(real_traces()), count)):
        clock.set((1 - number / count) * DAYS * 86_400)
        if number == count // 2:
            harmful = served.most_common(1)[0][0]
        block = client.playbooks.render(PLAYBOOK, trace["task_description"] or "")
        cited = block.bullet_keys[:2]
        if harmful in block.bullet_keys and harmful not in cited:
            cited = [harmful, *cited[:1]]
        served.update(block.bullet_keys)
        sent = {name: trace[name] for name in SENT if trace.get(name) is not None}
        receipt = client.traces.create(
            **sent,
            external_id=f"evolution-{number}",
            task_key=trace.get("group"),
            playbook=PLAYBOOK,
            retrieval_id=block.retrieval_id,
            used_bullet_keys=cited,
        )
        for _ in client.runs.follow(receipt.run_id) if receipt.run_id else ():
            pass
        for key in cited:
            bad = chance.random() < (0.9 if key == harmful else 0.1)
            try:
                client.playbooks.bullets.verdicts.create(
                    PLAYBOOK, key, "harmful" if bad else "helpful", trace_id=receipt.trace_id
                )
            except NotFoundError:  # merged or deleted meanwhile
                continue
    clock.set(0)
    return harmful


def investigate(client: Hansei, harmful: str) -> None:
    """The four questions, as a person asks them in a terminal."""
    drift = client.analytics.get("verdict_drift", playbook=PLAYBOOK, limit=1).rows[0]
    print(f"1. hansei analytics verdict_drift --playbook {PLAYBOOK} --limit 1")
    print({name: drift[name] for name in ("key", "status", "earlier_rate", "recent_rate", "high")})
    key = drift["key"]
    lives = client.analytics.get(
        "bullet_versions", playbook=PLAYBOOK, key=key, since="2000-01-01"
    ).rows
    print(
        f"2. hansei analytics bullet_versions --playbook {PLAYBOOK} --key {key} --since 2000-01-01"
    )
    for life in reversed(lives):
        print({n: life[n] for n in ("changed_at", "change_type", "changed_by", "reason", "run_id")})
    cost = client.analytics.get("bullet_costs", playbook=PLAYBOOK, key=key, since="2000-01-01")
    print(f"3. hansei analytics bullet_costs --playbook {PLAYBOOK} --key {key} --since 2000-01-01")
    print({n: cost.rows[0][n] for n in ("lesson_count", "trace_count", "cost_usd")})
    print("found the harmful bullet" if key == harmful else f"MISSED: it is {harmful}")


def main(
    traces: Annotated[int, typer.Option(min=20, max=551, help="Number of traces.")] = 240,
    library: Annotated[str | None, typer.Option(help="Path of libfaketime.")] = None,
    hold: Annotated[bool, typer.Option(help="Run the service until Ctrl-C.")] = False,
) -> None:
    found = library or next(iter(glob.glob(LIBRARIES)), None)
    if found is None:
        raise typer.BadParameter("Install the package libfaketime, or pass --library.")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hansei-clock-")))
        clock = MovedClock(folder, found)
        with clock.of_server():
            server = stack.enter_context(measured_server())
        provider = stack.enter_context(StubProvider())
        provider.behave = ModelStub()
        settings = {**asks(provider.anthropic_url), **clock.settings}
        stack.enter_context(worker(server, settings))
        port = stack.enter_context(api(server, settings))
        key = asyncio.run(new_tenant(server, "evolution"))
        client = stack.enter_context(Hansei(f"http://127.0.0.1:{port}", key))
        investigate(client, load(client, clock, traces))
        if hold:
            print(f"HANSEI_URL=http://127.0.0.1:{port} HANSEI_API_KEY={key}")
            signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    typer.run(main)
