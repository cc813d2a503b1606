"""kill -9 of worker, API and PostgreSQL at a random point of each step of learning, which rules
think out or a model that takes its time.

Three rounds of either by default; HANSEI_FAULTS=50 makes fifty. HANSEI_SEED chooses other points.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest

from tests.faults.conftest import undisturbed_census, with_model
from tests.faults.site import Site
from tests.faults.work import Census, Sender, assert_as_undisturbed

ROUNDS = int(os.environ.get("HANSEI_FAULTS", "0")) or 3
SEED = os.environ.get("HANSEI_SEED", "")
POINTS = (
    ("worker", "reflect"),
    ("postgres", "merge"),
    ("api", "send"),
    ("worker", "curate"),
    ("postgres", "send"),
    ("api", "reflect"),
    ("worker", "merge"),
    ("postgres", "reflect"),
    ("api", "evaluate"),
    ("worker", "evaluate"),
    ("postgres", "curate"),
    ("api", "merge"),
    ("worker", "send"),
    ("postgres", "evaluate"),
    ("api", "curate"),
)
LATER = 0.25
"""Seconds at most between the start of a step and the kill."""
THINKS = 0.15
"""Seconds the model takes: most kills meet calls that are under way."""


@pytest.fixture(scope="module", params=["rules", "model"])
def expected(request: pytest.FixtureRequest, site: Site, undisturbed: Census) -> Iterator[Census]:
    """What comes of the work when nothing breaks, by who thinks."""
    if request.param == "rules":
        yield undisturbed
        return
    with with_model(site, delay=THINKS):
        yield undisturbed_census(site)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_lost_or_counted_twice(
    site: Site, expected: Census, sender: Sender, number: int
) -> None:
    victim, step = POINTS[number % len(POINTS)]
    point = random.Random(f"{SEED}{number}").uniform(0, LATER)
    with sender.at_work():
        if step != "send":
            site.await_step(sender.tenant, step)
        time.sleep(point)
        if victim == "postgres":
            site.kill_postgres()
            site.pg.start()
        else:
            site.kill(victim)
            site.run(victim)
    assert_as_undisturbed(site, sender, expected)
    site.await_ready()
