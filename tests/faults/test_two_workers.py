"""Two workers are given the same jobs; one of them is stopped for longer than its leases last."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults.site import LEASE, Site
from tests.faults.work import Census, Sender, assert_as_undisturbed

TWICE = """
insert into pgqueuer (priority, entrypoint, payload, execute_after, status)
select priority, entrypoint, payload, execute_after, 'queued' from pgqueuer where lane = $1
"""


@pytest.fixture
def second(site: Site) -> Iterator[str]:
    site.run("second")
    yield "second"
    site.kill("second")


def test_a_job_is_done_once(site: Site, second: str, undisturbed: Census, sender: Sender) -> None:
    both = ("worker", second)
    for name in both:
        site.signal(name, signal.SIGSTOP)
    with sender.at_work():
        pass
    site.rows(TWICE, sender.tenant.id)
    for name in both:
        site.signal(name, signal.SIGCONT)
    site.await_step(sender.tenant, "reflect")
    site.signal("worker", signal.SIGSTOP)
    time.sleep(LEASE + 1)
    site.signal("worker", signal.SIGCONT)
    assert_as_undisturbed(site, sender, undisturbed)
