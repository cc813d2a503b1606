"""API and workers behind PgBouncer in transaction mode, where each transaction may get another
connection of the server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest

from tests.support.fault_workload import ADVICE, Census, Sender, assert_same_census
from tests.support.installation import Installation
from tests.support.pooler import ROLES, pooler

AT_ONCE = 8
ROUNDS = 20


@pytest.fixture
def pooled(installation: Installation) -> Iterator[Installation]:
    """The installation with two workers, all of them behind PgBouncer."""
    with (
        TemporaryDirectory(dir="/var/tmp", prefix="hansei-pooler-") as folder,
        pooler(installation, Path(folder)) as urls,
    ):
        app, worker = (urls[role] for role in ROLES)
        settings = {
            "DATABASE_URL": app,
            "HANSEI_WORKER_URL": worker,
            "HANSEI_LISTEN_URL": installation.pg.url("hansei_worker"),
            "HANSEI_STATEMENT_CACHE": "0",
        }
        installation.run("second", settings)
        try:
            installation.run_again(settings)
            yield installation
        finally:
            installation.kill("second")
            del installation.extra["second"]  # its address ends here
            installation.run_again({})


def test_transaction_pooler_loses_nothing(
    pooled: Installation, expected_census: Census, sender: Sender
) -> None:
    with sender.at_work():
        pass
    assert_same_census(pooled, sender, expected_census)
    others = [pooled.tenant() for _ in range(AT_ONCE)]

    def search(place: int) -> list[Any]:
        """Each tenant has one bullet, and finds that one only."""
        headers = {"Authorization": f"Bearer {others[place].key}"}
        url = f"{pooled.url}/api/v1/playbooks/desk"
        found: list[Any] = []
        with httpx2.Client(headers=headers, timeout=30) as client:
            own = f"{ADVICE} {place}"
            assert client.post(f"{url}/bullets", json={"content": own}).status_code == 201
            for _ in range(ROUNDS):
                answer = client.post(f"{url}/search", json={"query_text": "refund"})
                assert answer.status_code == 200, answer.text
                found += [hit["bullet"]["content"] == own for hit in answer.json()["results"]]
                answer = client.post(f"{url}/render", json={"query_text": "refund"})
                assert answer.status_code == 200, answer.text
                assert own in answer.json()["text"]
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for found in pool.map(search, range(AT_ONCE)):
            assert found == [True] * ROUNDS
