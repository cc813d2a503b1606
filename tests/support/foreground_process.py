"""A process that answers `reflections/generate` and dies while it thinks.

Arguments: database URL, tenant id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any
from uuid import UUID, uuid4

from memory_api.auth.identity import Identity, KeyScope
from memory_api.bootstrap import open_runtime
from memory_api.core.settings import Settings
from memory_api.reflection.foreground import ForegroundReflection, reflect_in_foreground
from memory_api.reflection.pipeline import LearningStep
from memory_api.reflection.schemas import GenerateReflectionResponse
from memory_api.reflection.step import TraceLearner
from memory_api.traces.schemas import CreateTraceRequest

BODY = {
    "outcome": "failure",
    "events": [{"event_type": "error_event", "content": "connection refused"}],
}


class DeadlyLearner(TraceLearner):
    async def generate(self, *_: object) -> Any:
        sys.stdout.write("AT WORK\n")
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, tenant_id: UUID) -> None:
    caller = Identity(tenant_id, uuid4(), frozenset({KeyScope.WRITE}))
    settings = Settings(_env_file=None, lease_seconds=1)  # type: ignore[call-arg]
    async with open_runtime(settings, url) as runtime:
        trace = CreateTraceRequest.model_validate(BODY)
        step = LearningStep(DeadlyLearner())
        request = ForegroundReflection(
            trace, step, GenerateReflectionResponse, prefer="", sanitized=False
        )
        await reflect_in_foreground(runtime, caller, request)


asyncio.run(main(sys.argv[1], UUID(sys.argv[2])))
