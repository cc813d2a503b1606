"""The provider of the model is down, slow, and answers nonsense; then it recovers. Nothing is lost,
and the result is that of a provider without failures."""

from __future__ import annotations

import pytest

from tests.support.fault_workload import Sender, assert_same_census, census
from tests.support.installation import Installation, until
from tests.support.stub_provider import (
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


@pytest.mark.with_model
def test_queue_drains_when_provider_recovers(
    installation: Installation, model: StubProvider
) -> None:
    good = Sender(installation, installation.tenant())
    with good.at_work():
        pass
    installation.await_drained(good.tenant)
    expected = census(installation, good.tenant)
    model.clear()

    bad = Sender(installation, installation.tenant())
    model.behave = lambda call: reset()
    with bad.at_work():
        until(lambda: len(model.calls) >= 2, "calls to the unavailable provider")
    assert installation.ready().json()["database"]["status"] == "ok"
    waiting = installation.rows(
        "select count(*) from runs where tenant_id = $1 and kind = 'reflect' and state <> 'done'",
        bad.tenant.id,
    )
    assert waiting[0][0] > 0
    lies = (wrong_shape(), truncated({"reflection": "x"}), max_tokens({"reflection": "x"}))
    model.queue(server_error(), rate_limited(1), hang(3), *lies, prose({"reflection": 1}))
    model.behave = by_schema
    assert_same_census(installation, bad, expected)
    dead = installation.rows(
        "select kind from runs where tenant_id = $1 and state = 'dead'", bad.tenant.id
    )
    assert dead == []
