"""PostgreSQL away for a while: what was acknowledged stays, and readiness says how it is."""

from __future__ import annotations

import os
import time

import httpx2

from tests.support.fault_workload import Census, Sender, Watch, assert_same_census
from tests.support.installation import Installation, until

AWAY = 10.0 if os.environ.get("HANSEI_FAULTS") else 2.0


def test_database_outage_loses_nothing(
    installation: Installation, expected_census: Census, sender: Sender
) -> None:
    with Watch(installation).watching() as watch:
        with sender.at_work():
            installation.await_step(sender.tenant, "evaluate")
            installation.kill_postgres()
            until(lambda: installation.ready().status_code == 503, "the news of it")
            gone = time.monotonic()
            time.sleep(AWAY)
            back = time.monotonic()
            installation.pg.start()
        installation.await_ready()
        assert_same_census(installation, sender, expected_census)
    assert watch.between(gone, back) == {503}
    assert {status for _, _, status in watch.answers} == {200, 503}
    assert installation.ready().json()["database"]["status"] == "ok"


def test_stopped_database_is_answered_in_time(installation: Installation) -> None:
    """SIGSTOP: the connections stay open and nothing answers. Without its time limit, the API would
    not answer before the client gives up."""
    tenant = installation.tenant()
    headers = {"Authorization": f"Bearer {tenant.key}"}
    installation.run_again({"HANSEI_DATABASE_TIMEOUT": "1"})
    try:
        with httpx2.Client(base_url=installation.url, headers=headers, timeout=30) as client:
            assert client.get("/api/v1/traces").status_code == 200
            with installation.stopped_postgres():
                for _ in range(3):
                    answer = client.get("/api/v1/traces")
                    assert answer.status_code == 503, answer.text
                    assert answer.headers["Retry-After"]
                    assert answer.json()["code"] == "unavailable"
                assert installation.ready().status_code == 503
            until(lambda: client.get("/api/v1/traces").status_code == 200, "its return")
            installation.await_ready()
    finally:
        installation.run_again({})
