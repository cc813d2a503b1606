"""An imported playbook keeps its creation time through every door."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from httpx2 import AsyncClient
from typer.testing import CliRunner

from hansei import Hansei
from hansei.cli.main import app
from tests.conftest import TestTenant

CREATED = "2024-02-03T04:05:00Z"
DOCUMENT = {
    "metadata": {"version": "1.0.0", "created_at": CREATED},
    "bullets": [{"id": "str-00001", "section": "STRATEGY", "content": "Count twice."}],
}


async def test_creation_time_of_an_import(
    api: AsyncClient, live: str, tenant: TestTenant, tmp_path: Path
) -> None:
    key, file = tenant.keys["admin"], tmp_path / "playbook.json"
    file.write_text(json.dumps(DOCUMENT), "utf8")
    stored = await api.put("/api/v1/playbooks/over-http", json=DOCUMENT)
    assert stored.status_code < 300, stored.text

    def use_others() -> None:
        with Hansei(live, key) as client:
            client.playbooks.replace("by-client", DOCUMENT)
        environment = {"HANSEI_URL": live, "HANSEI_API_KEY": key}
        command = ["playbook", "import", "by-command", str(file)]
        run = CliRunner().invoke(app, command, env=environment)
        assert run.exit_code == 0, run.output

    await asyncio.to_thread(use_others)
    for name in ("over-http", "by-client", "by-command"):
        found = (await api.get(f"/api/v1/playbooks/{name}")).json()
        assert found["metadata"]["created_at"].startswith("2024-02-03T04:05:00"), name
