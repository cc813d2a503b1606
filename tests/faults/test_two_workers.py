"""Two workers are given the same jobs; one of them is stopped for longer than its leases last."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.fault_workload import Census, Sender, assert_same_census
from tests.support.installation import LEASE, Installation

TWICE = """
insert into tickets (lane, run_id, due_at) select lane, run_id, due_at from tickets where lane = $1
"""


@pytest.fixture
def second(installation: Installation) -> Iterator[str]:
    installation.run("second")
    yield "second"
    installation.kill("second")


def test_run_is_executed_once(
    installation: Installation, second: str, expected_census: Census, sender: Sender
) -> None:
    both = ("worker", second)
    for name in both:
        installation.signal(name, signal.SIGSTOP)
    with sender.at_work():
        pass
    installation.rows(TWICE, sender.tenant.id)
    for name in both:
        installation.signal(name, signal.SIGCONT)
    installation.await_step(sender.tenant, "reflect")
    installation.signal("worker", signal.SIGSTOP)
    time.sleep(LEASE + 1)
    installation.signal("worker", signal.SIGCONT)
    assert_same_census(installation, sender, expected_census)
