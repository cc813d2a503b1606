"""`hansei erase` and `hansei trace delete` against the service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import CliRunner, Result

from hansei import Hansei
from hansei.cli.main import app
from hansei.errors import NotFoundError
from tests.conftest import TestTenant


async def test_erasing_a_person_and_a_mistyped_one(
    live: str,
    tenant: TestTenant,
    drain: Callable[..., Awaitable[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])

    async def hansei(*arguments: str) -> Result:
        done = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, app, list(arguments)))
        while not done.done():
            await drain(tenant.id)
            await asyncio.sleep(0.05)
        return await done

    with Hansei(live, tenant.keys["admin"]) as client:

        def store() -> str:
            events = [{"event_type": "user_message", "content": "Hello"}]
            return client.traces.create(events=events, metadata={"subject": "user-7"}).trace_id

        trace_id, other = (
            store(),
            client.traces.create(
                events=[{"event_type": "user_message", "content": "Bye"}]
            ).trace_id,
        )
        mistyped = await hansei("erase", "person", "user-8")
        assert mistyped.exit_code == 1
        assert (
            mistyped.stderr == "Nothing was found: no data has the `metadata.subject` 'user-8'.\n"
        )
        assert client.traces.get(trace_id).id == trace_id
        erased = await hansei("erase", "person", "user-7", "--reason", "asked for")
        assert erased.exit_code == 0, erased.output
        assert "Erased: memories 0, traces 1." in erased.stdout, erased.output
        deleted = await hansei("trace", "delete", other)
        assert f"`hansei erase trace {other}`" in deleted.stdout, deleted.output
        for gone in (trace_id, other):
            with pytest.raises(NotFoundError):
                client.traces.get(gone)
