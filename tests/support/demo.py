"""The tenant that `hansei demo` loads. It takes seconds: the tests that only read it share it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from memory_api.core.ids import to_tenant_id
from tests.conftest import Database
from tests.support.server_command import run_command_here


@dataclass(frozen=True)
class Demo:
    """A loaded demo. `seconds` is how long the command took. `other_advice` counts the runs that
    get other bullets than in the recording.
    """

    slug: str
    key: str
    database: Database
    seconds: float
    other_advice: int = 0

    @property
    def tenant_id(self) -> UUID:
        return to_tenant_id(self.slug)

    async def fetch(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the tenant, as the role of the API sees them."""
        connection = await asyncpg.connect(self.database.url("hansei_app"))
        try:
            async with connection.transaction():
                await connection.execute(f"set local hansei.tenant_id = '{self.tenant_id}'")
                return [tuple(row) for row in await connection.fetch(statement, *values)]
        finally:
            await connection.close()

    def run(self, *options: str) -> tuple[int, str, str]:
        """`hansei demo` with this tenant."""
        return run_command_here(
            ("demo", "--tenant", self.slug, *options), environment(self.database)
        )


def environment(database: Database) -> dict[str, str]:
    return {
        f"HANSEI_{name}_URL": database.url(f"hansei_{role}")
        for name, role in (("OWNER", "owner"), ("WORKER", "worker"), ("DATABASE", "app"))
    }


@pytest.fixture(scope="session")
def demo(database: Database) -> Demo:
    slug, started = f"demo-{uuid4()}", time.monotonic()
    made = Demo(slug, "", database, 0.0)
    status, output, errors = made.run("--json")
    assert status == 0, errors
    answer = json.loads(output)
    seconds = time.monotonic() - started
    return Demo(slug, answer["key"], database, seconds, answer["other_advice"])
