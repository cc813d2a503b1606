"""One installation for all tests of a process; what each of them breaks it mends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.site import Site
from tests.faults.work import Census, Sender, census, lost


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="hansei-faults-"))
    made = Site(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def undisturbed(site: Site) -> Census:
    """What comes of the work when nothing breaks."""
    sender = Sender(site, site.tenant())
    with sender.at_work():
        pass
    site.await_drained(sender.tenant)
    assert not lost(site, sender)
    found = census(site, sender.tenant)
    assert {of for name, of in found if name == "runs"} == {
        *("evaluate done", "reflect done", "curate done", "merge done"),
    }
    assert any(name == "verdicts" for name, _ in found), found
    return found


@pytest.fixture
def sender(site: Site) -> Sender:
    """Of a tenant nobody else has."""
    return Sender(site, site.tenant())
