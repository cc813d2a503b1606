"""An imported playbook has the creation time of its file, through every door."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from httpx2 import AsyncClient
from typer.testing import CliRunner

from hansei import Hansei
from hansei.cli.main import app
from tests.conftest import TestTenant
from tests.support.cases import each_case

CREATED = "2024-02-03T04:05:00Z"
EARLIER = "2023-01-02T03:04:00Z"
DOCUMENT = {
    "bullets": [{"id": "str-00001", "section": "STRATEGY", "content": "Count twice."}],
}


async def test_creation_time_of_an_import(
    api: AsyncClient, live: str, tenant: TestTenant, tmp_path: Path
) -> None:
    key, file = tenant.keys["admin"], tmp_path / "playbook.json"
    environment = {"HANSEI_URL": live, "HANSEI_API_KEY": key}
    command = ["playbook", "import", "by-command", str(file)]

    def use_others(document: dict[str, Any]) -> None:
        with Hansei(live, key) as client:
            client.playbooks.replace("by-client", document)
        run = CliRunner().invoke(app, command, env=environment)
        assert run.exit_code == 0, run.output

    for created in (CREATED, EARLIER):
        document = DOCUMENT | {"metadata": {"version": "1.0.0", "created_at": created}}
        file.write_text(json.dumps(document), "utf8")
        stored = await api.put("/api/v1/playbooks/over-http", json=document)
        assert stored.status_code < 300, stored.text
        await asyncio.to_thread(use_others, document)
        for name in ("over-http", "by-client", "by-command"):
            found = await api.get(f"/api/v1/playbooks/{name}")
            assert found.json()["metadata"]["created_at"] == created, name
            assert found.headers["ETag"] == '"1"', "the bullets are the same"


@each_case("created", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_creation_time_that_cannot_be_is_left_out(api: AsyncClient, created: str) -> None:
    """In UTC, the first is in the year 0. It was a 500."""
    before = datetime.now(UTC)
    document = DOCUMENT | {"metadata": {"created_at": created}}
    assert (await api.put(f"/api/v1/playbooks/{created[:4]}", json=document)).status_code == 200
    found = (await api.get(f"/api/v1/playbooks/{created[:4]}")).json()
    assert datetime.fromisoformat(found["metadata"]["created_at"]) >= before
