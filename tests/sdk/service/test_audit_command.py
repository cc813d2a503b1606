"""`hansei audit` lists administrative acts."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from hansei import Hansei
from hansei.cli.main import app
from tests.conftest import TestTenant


async def test_administrative_acts_are_listed(
    live: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])
    with Hansei(live, tenant.keys["admin"]) as client:
        key = await asyncio.to_thread(client.api_keys.create, "robot")
        await asyncio.to_thread(client.api_keys.revoke, key.id)

    def audit(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["audit", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    revoked, created = (await asyncio.to_thread(audit)).splitlines()[:2]
    assert "key.revoked" in revoked
    assert "key.created" in created
    assert key.key not in revoked + created
    one = await asyncio.to_thread(audit, "--action", "key.created", "--limit", "1", "--json")
    assert [event["action"] for event in json.loads(one)["items"]] == ["key.created"]
