"""One installation for all tests of a process; what each of them breaks it mends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.site import Site
from tests.faults.work import Census, Sender, census, lost
from tests.stub_provider import StubProvider


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
    """What comes of the work by rules when nothing breaks."""
    return undisturbed_census(site)


def undisturbed_census(site: Site) -> Census:
    """What comes of the work, as the site is, when nothing breaks."""
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


@contextmanager
def with_model(site: Site, *, delay: float = 0.0) -> Iterator[StubProvider]:
    """API and worker ask a stub of a model; afterwards rules think again."""
    with StubProvider(delay=delay) as provider:
        model = {
            "HANSEI_LLM_PROVIDER": "openai",
            "HANSEI_LLM_MODEL": "stub",
            "OPENAI_API_KEY": "stub",
            "OPENAI_BASE_URL": provider.openai_url,
            "HANSEI_LLM_TIMEOUT": "1",
        }
        site.run_again(model)
        try:
            yield provider
        finally:
            site.run_again({})


@pytest.fixture
def sender(site: Site) -> Sender:
    """Of a tenant nobody else has."""
    return Sender(site, site.tenant())
