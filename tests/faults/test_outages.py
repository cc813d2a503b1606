"""PostgreSQL away for a while: what was acknowledged stays, and readiness says how it is."""

from __future__ import annotations

import os
import time

from tests.faults.site import Site, until
from tests.faults.work import Census, Sender, Watch, assert_as_undisturbed

AWAY = 10.0 if os.environ.get("HANSEI_FAULTS") else 2.0


def test_the_database_is_away(site: Site, undisturbed: Census, sender: Sender) -> None:
    with Watch(site).watching() as watch:
        with sender.at_work():
            site.await_step(sender.tenant, "evaluate")
            site.kill_postgres()
            until(lambda: site.ready().status_code == 503, "the news of it")
            gone = time.monotonic()
            time.sleep(AWAY)
            back = time.monotonic()
            site.pg.start()
        site.await_ready()
        assert_as_undisturbed(site, sender, undisturbed)
    assert watch.between(gone, back) == {503}
    assert {status for _, _, status in watch.answers} == {200, 503}
    assert site.ready().json()["database"]["status"] == "ok"
