"""One installation for all tests of a process. Each test restores what it breaks."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fault_workload import Census, Sender, census, lost
from tests.support.installation import Installation
from tests.support.stub_provider import StubProvider

REPEAT = int(os.environ.get("HANSEI_FAULTS_REPEAT", "1"))
"""Rounds of every test of this folder, without those that have rounds of their own."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if REPEAT > 1 and "number" not in metafunc.fixturenames:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(REPEAT))


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    folder = Path(tempfile.mkdtemp(prefix="hansei-faults-"))
    made = Installation(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def expected_census(installation: Installation) -> Census:
    """What comes of the work by rules when nothing breaks."""
    return measure_census(installation)


def measure_census(installation: Installation) -> Census:
    """What comes of the work, as the site is, when nothing breaks."""
    sender = Sender(installation, installation.tenant())
    with sender.at_work():
        pass
    installation.await_drained(sender.tenant)
    assert not lost(installation, sender)
    found = census(installation, sender.tenant)
    assert {of for name, of in found if name == "runs"} == {
        *("evaluate done", "reflect done", "curate done", "apply done"),
    }
    assert any(name == "verdicts" for name, _ in found), found
    return found


@pytest.fixture(scope="session")
def model(installation: Installation) -> Iterator[StubProvider]:
    """From now on, API and worker use a stub of a model. So tests with a model run last."""
    with StubProvider() as provider:
        settings = {
            "HANSEI_LLM_PROVIDER": "openai",
            "HANSEI_LLM_MODEL": "stub",
            "OPENAI_API_KEY": "stub",
            "OPENAI_BASE_URL": provider.openai_url,
            "HANSEI_LLM_TIMEOUT": "1",
        }
        installation.run_again(settings)
        yield provider


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests that are marked `with_model` to the end of this folder."""
    folder = Path(__file__).parent
    places = [place for place, item in enumerate(items) if item.path.parent == folder]
    own = sorted((items[place] for place in places), key=uses_model)
    for place, item in zip(places, own, strict=True):
        items[place] = item


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("thorough") and not os.environ.get("HANSEI_FAULTS"):
        pytest.skip("only `make test-faults` runs it")


def uses_model(item: pytest.Item) -> bool:
    return item.get_closest_marker("with_model") is not None


@pytest.fixture
def sender(installation: Installation) -> Sender:
    """Of a tenant nobody else has."""
    return Sender(installation, installation.tenant())
