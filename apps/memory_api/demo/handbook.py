"""A collection of documents written for the demo, and questions about it. Hansei answers them by
its rules, without a model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from memory_api.auth.identity import Identity
from memory_api.collections.documents import create_collection
from memory_api.collections.router import upload_document
from memory_api.collections.schemas import CreateCollectionRequest
from memory_api.demo.history import Json
from memory_api.demo.local_queue import LocalQueue
from memory_api.grace.agent_runs import create_agent_run
from memory_api.grace.config import GraceConfig, InterventionSection
from memory_api.grace.interventions import AGENT
from memory_api.grace.router import answer_intervention, get_agent_run, record_agent_feedback
from memory_api.grace.schemas import (
    AnswerInterventionRequest,
    CreateAgentRunRequest,
    RecordAgentFeedbackRequest,
)
from memory_api.grace.step import AgentRunStep
from memory_api.runtime import Runtime
from memory_api.worker import RUN_STEPS

FOLDER = Path(__file__).parent
DOCUMENTS = FOLDER / "handbook"
QUESTIONS = FOLDER / "questions.jsonl"
COLLECTION = CreateCollectionRequest(
    name="handbook", description="What the airline and the shop promise their customers"
)
CONFIG = GraceConfig(intervention=InterventionSection(timeout_seconds=0))
"""A question waits until a person answers it."""
STEPS = {**RUN_STEPS, AGENT: AgentRunStep(CONFIG)}


def load_questions() -> list[Json]:
    """The questions by day. `action` is what a person answers if the agent asks back, and
    `feedback` how a person judges the answer. `follows` names an earlier question.
    """
    return [json.loads(line) for line in QUESTIONS.read_text(encoding="utf8").splitlines()]


@dataclass
class Handbook:
    """The collection. `runtime` has no model."""

    runtime: Runtime
    queue: LocalQueue
    caller: Identity
    project: str
    run_ids: dict[str, UUID] = field(default_factory=dict[str, UUID])
    """Question → its agent run."""

    async def load(self) -> None:
        async with self.runtime.sessions.for_tenant(self.caller.tenant_id) as session:
            await create_collection(session, self.project, COLLECTION)
        for path in sorted(DOCUMENTS.iterdir()):
            content = path.read_bytes()
            await upload_document(
                self.runtime,
                self.caller.tenant_id,
                (self.project, COLLECTION.name),
                _stream(content),
                "text/markdown",
                source=path.name,
                title=content.decode().partition("\n")[0].removeprefix("# "),
            )
        await self.queue.process(self.runtime)

    async def ask(self, question: Json) -> None:
        """Ask, and do what a person did then."""
        runtime, caller = self.runtime, self.caller
        body = CreateAgentRunRequest(
            query=question["query"], previous_run_id=self.run_ids.get(question.get("follows", ""))
        )
        async with runtime.sessions.for_tenant(caller.tenant_id) as session:
            run = await create_agent_run(runtime, session, self.project, body, CONFIG)
        self.run_ids[run.query] = run.id
        await self.queue.process(runtime, STEPS)
        if "action" in question:
            answer = AnswerInterventionRequest(action=question["action"])
            async with runtime.sessions.for_tenant(caller.tenant_id) as session:
                asked = (await get_agent_run(run.id, session, caller)).intervention
                assert asked is not None, "the agent asks back"
                await answer_intervention(run.id, asked.id, answer, runtime, session, caller)
            await self.queue.process(runtime, STEPS)
        if "feedback" in question:
            feedback = RecordAgentFeedbackRequest(feedback=question["feedback"])
            async with runtime.sessions.for_tenant(caller.tenant_id) as session:
                await record_agent_feedback(run.id, feedback, runtime, session, caller)
            await self.queue.process(runtime, STEPS)


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content
