"""The model's provider is down, slow, and lies; then it answers. Nothing is lost, the end is as
of one that was well all the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.conftest import with_model
from tests.faults.site import Site, until
from tests.faults.work import Sender, assert_as_undisturbed, census
from tests.stub_provider import (
    StubProvider,
    by_schema,
    hang,
    max_tokens,
    prose,
    rate_limited,
    reset,
    server_error,
    truncated,
    wrong_shape,
)


@pytest.fixture
def stub(site: Site) -> Iterator[StubProvider]:
    """The model of API and worker, for one test."""
    with with_model(site) as provider:
        yield provider


def test_it_drains_when_the_provider_is_back(site: Site, stub: StubProvider) -> None:
    good = Sender(site, site.tenant())
    with good.at_work():
        pass
    site.await_drained(good.tenant)
    expected = census(site, good.tenant)
    stub.clear()

    bad = Sender(site, site.tenant())
    stub.behave = lambda call: reset()
    with bad.at_work():
        until(lambda: len(stub.calls) >= 2, "work that met the provider away")
    assert site.ready().json()["database"]["status"] == "ok"
    waiting = site.rows(
        "select count(*) from runs where tenant_id = $1 and kind = 'reflect' and state <> 'done'",
        bad.tenant.id,
    )
    assert waiting[0][0] > 0
    lies = (wrong_shape(), truncated({"reflection": "x"}), max_tokens({"reflection": "x"}))
    stub.queue(server_error(), rate_limited(1), hang(3), *lies, prose({"reflection": 1}))
    stub.behave = by_schema
    assert_as_undisturbed(site, bad, expected)
    dead = site.rows("select kind from runs where tenant_id = $1 and state = 'dead'", bad.tenant.id)
    assert dead == []
