"""A process that answers `reflections/generate` and dies while it thinks.

Arguments: database URL, tenant id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from uuid import UUID, uuid4

from apps.memory_api.core.settings import Settings
from apps.memory_api.reflection import foreground
from apps.memory_api.reflection.schemas import GenerateIn
from apps.memory_api.runtime import open_runtime
from apps.memory_api.tenants.identity import Access, Identity

BODY = {
    "outcome": "failure",
    "events": [{"event_type": "error_event", "content": "connection refused"}],
}


async def die(*_: object, **__: object) -> None:
    sys.stdout.write("AT WORK\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, tenant_id: UUID) -> None:
    foreground.reflect = die  # type: ignore[assignment]
    caller = Identity(tenant_id, uuid4(), frozenset({Access.WRITE}))
    settings = Settings(_env_file=None, lease_seconds=1)  # type: ignore[call-arg]
    async with open_runtime(settings, url) as runtime:
        body = GenerateIn.model_validate(BODY)
        await foreground.reflect_now(runtime, caller, body, wait=True)


asyncio.run(main(sys.argv[1], UUID(sys.argv[2])))
