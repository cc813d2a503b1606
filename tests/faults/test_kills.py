"""kill -9 of worker, API and PostgreSQL at a random point of each step of learning.

Three rounds by default; HANSEI_FAULTS=50 makes fifty. HANSEI_SEED chooses other points.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.faults.site import Site
from tests.faults.work import Census, Sender, assert_as_undisturbed

ROUNDS = int(os.environ.get("HANSEI_FAULTS", "0")) or 3
SEED = os.environ.get("HANSEI_SEED", "")
POINTS = (
    ("worker", "reflect"),
    ("postgres", "merge"),
    ("api", "send"),
    ("worker", "merge"),
    ("postgres", "send"),
    ("worker", "evaluate"),
    ("postgres", "reflect"),
    ("worker", "curate"),
    ("postgres", "evaluate"),
    ("api", "evaluate"),
    ("postgres", "curate"),
)
LATER = 0.25
"""Seconds at most between the start of a step and the kill."""


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_lost_or_counted_twice(
    site: Site, undisturbed: Census, sender: Sender, number: int
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
    assert_as_undisturbed(site, sender, undisturbed)
    site.await_ready()
