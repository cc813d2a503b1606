"""The wall clocks of API and worker jump by hours, and differ from that of the database."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.support.fault_workload import Census, Sender, assert_same_census
from tests.support.installation import Installation, until
from tests.support.paths import ROOT

HOURS = 3_600


@pytest.fixture
def shift_clocks(installation: Installation) -> Iterator[Callable[[int], None]]:
    """Sets the clocks of API and worker to so many seconds after the time of the machine. A second
    worker has the time of the machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("another clock needs a C compiler")
    library, file = installation.folder / "clock.so", installation.folder / "clock-shift"
    source = ROOT / "tests/support/clock_shift.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    set_shift(file, 0)
    installation.run_again({"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(file)})
    installation.run("second", {})
    try:
        yield lambda seconds: set_shift(file, seconds)
    finally:
        installation.kill("second")
        installation.run_again({})


def set_shift(file: Path, seconds: int) -> None:
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(struct.pack("q", seconds))


def clock_error(installation: Installation) -> float:
    """Seconds between the clock of the API and that of the tests."""
    date = parsedate_to_datetime(installation.ready().headers["date"])
    return (date - datetime.now(UTC)).total_seconds()


@pytest.mark.parametrize(
    "seconds", [3 * HOURS, pytest.param(-3 * HOURS, marks=pytest.mark.thorough)]
)
def test_clock_jump_loses_nothing(
    installation: Installation,
    expected_census: Census,
    sender: Sender,
    shift_clocks: Callable[[int], None],
    seconds: int,
) -> None:
    with sender.at_work():
        installation.await_step(sender.tenant, "evaluate")
        shift_clocks(seconds)
        until(lambda: abs(clock_error(installation)) > HOURS, "the jump")
        installation.await_step(sender.tenant, "reflect")
        shift_clocks(0)
    shift_clocks(seconds)
    assert_same_census(installation, sender, expected_census)
    assert installation.ready().status_code == 200
    taken_over = installation.rows(
        "select count(*) from runs where tenant_id = $1 and attempts > 1", sender.tenant.id
    )
    assert taken_over[0][0] == 0
