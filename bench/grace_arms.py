"""The arms of `bench grace_with_model`: the same questions, service and person, other plans."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch
from uuid import UUID

from httpx2 import ASGITransport, AsyncClient

from bench.grace_questions import Question, QuestionSet
from bench.harness import MeasuredServer, new_tenant
from bench.recorded_model import PATIENCE_SECONDS, RecordedCall, RecordedModel, call_name
from memory_api.bootstrap import open_runtime
from memory_api.core.ids import to_tenant_id
from memory_api.core.settings import Settings
from memory_api.grace import queries
from memory_api.grace.config import GraceConfig, load_config
from memory_api.grace.context import MAX_RUNS
from memory_api.grace.interventions import AGENT
from memory_api.grace.step import AgentRunStep
from memory_api.llm.port import LLM, LLMRequest
from memory_api.main import create_app
from memory_api.run_queue.port import Ticket
from memory_api.runs.queries import get_run
from memory_api.runtime import Runtime
from memory_api.worker import RUN_STEPS, process_ticket
from tests.support.tickets import waiting_tickets

URL = "/api/v1/agents/runs"
JUDGE = "grace_judge"
"""The purpose of the calls that compare an answer with its sources."""
ENDED = ("done", "failed", "cancelled")
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Service:
    """The API of one tenant in this process, and a worker that is driven from here."""

    api: AsyncClient
    runtime: Runtime
    tenant_id: UUID

    async def work(self) -> None:
        """Execute the runs that are due."""
        while tickets := await waiting_tickets(self.runtime, self.tenant_id):
            for start in range(0, len(tickets), 4):
                four = tickets[start : start + 4]
                await asyncio.gather(*(process_ticket(self.runtime, each) for each in four))


class JudgedModel(RecordedModel):
    """Asks the judge, if there is one, to compare an answer with its sources. `error` is why a call
    had no answer.
    """

    judge: LLM | None = None
    error: Exception | None = None

    async def find_answer(self, mine: RecordedCall, request: LLMRequest) -> RecordedCall:
        model = self.judge if self.judge and request.purpose == JUDGE else self.asked
        try:
            return await self.ask(mine, request, model)
        except Exception as error:
            self.error = error
            raise


@dataclass
class Answered:
    """A question, its run when it has ended, and what it took."""

    question: Question
    run: dict[str, Any]
    asked: int
    """Questions to the person."""
    asked_for_nothing: int
    """Those of them to which the person could add nothing, although the documents have the
    answer.
    """
    calls: int
    tokens: int
    steps: int

    @property
    def ending(self) -> str:
        return self.question.ending(self.run)

    @property
    def is_right(self) -> bool:
        return self.ending == "right"


@dataclass
class ArmBench:
    """One arm: the service in this process, and a worker that executes its agent runs. Runs of
    learning wait until all questions are answered, so that their order is always the same.
    """

    arm: str
    recordings: Path
    asked: QuestionSet
    at_once: int = 20
    model: JudgedModel = field(default_factory=JudgedModel)
    names: dict[UUID, asyncio.Future[str]] = field(default_factory=dict[UUID, asyncio.Future[str]])
    """Agent run → what its calls are counted for, once its request has been answered."""
    progress: dict[UUID, asyncio.Event] = field(
        default_factory=lambda: defaultdict[UUID, asyncio.Event](asyncio.Event)
    )
    """Agent run → set when the worker has done something for it."""
    held: list[Ticket] = field(default_factory=list[Ticket])
    """Tickets of the learning."""

    async def run(
        self, server: MeasuredServer, model: LLM | None, judge: LLM | None = None
    ) -> dict[str, list[Answered]]:
        """Answer all questions. `again` answers those of `grace` first, from its recordings. The
        judge, if there is one, is the model that compares answers with their sources. Raises what a
        model raised, or `NotRecorded`.
        """
        first = "grace" if self.arm == "again" else self.arm
        async with self._open_service(server) as service:
            try:
                await load_collections(service, self.asked)
                self.model.judge = judge
                self.model.open_file(self._file(first), None if self.arm == "again" else model)
                results = {first: await self._answer_all(service, first)}
                if self.arm == "again":
                    self.model.open_file(self._file("again"), model)
                    await self._learn(service, results["grace"])
                    results["again"] = await self._answer_all(service, "again")
            finally:
                for each in filter(None, (model, judge)):
                    await each.aclose()
        return results

    def _file(self, arm: str) -> Path:
        return self.recordings / f"{arm}.jsonl"

    @asynccontextmanager
    async def _open_service(self, server: MeasuredServer) -> AsyncGenerator[Service]:
        tenant = f"grace-{secrets.token_hex(4)}"
        key = await new_tenant(server, tenant)
        settings = Settings(
            _env_file=None,  # type: ignore[call-arg]
            llm_provider="none",
            curation_interval=0,
            run_timeout=10 * PATIENCE_SECONDS,
        )
        async with open_runtime(settings, server.url("hansei_app")) as opened:
            runtime = replace(opened, llm=self.model)
            app = create_app(settings, runtime=runtime)
            async with (
                app.router.lifespan_context(app),
                AsyncClient(
                    transport=ASGITransport(app),
                    base_url="http://bench",
                    headers={"Authorization": f"Bearer {key}"},
                    timeout=60,
                ) as api,
            ):
                yield Service(api, runtime, to_tenant_id(tenant))

    async def _answer_all(self, service: Service, arm: str) -> list[Answered]:
        """Ask all questions, `at_once` of them at the same time. Their plans know what was finished
        before, and not which of them was faster.
        """
        free = asyncio.Semaphore(self.at_once)
        async with service.runtime.sessions.for_tenant(service.tenant_id) as session:
            finished = await queries.load_experience(session, "default", MAX_RUNS)

        async def answer(question: Question) -> Answered:
            async with free:
                return await self._answer(service, arm, question)

        with patch.object(queries, "load_experience", AsyncMock(return_value=finished)):
            worker = asyncio.create_task(self._work(service))
            answers = asyncio.gather(*map(answer, self.asked.questions))
            try:
                await asyncio.wait({worker, answers}, return_when=asyncio.FIRST_COMPLETED)
                if worker.done():
                    await worker  # raises
                return await answers
            finally:
                for task in (worker, answers):
                    task.cancel()
                await asyncio.gather(worker, answers, return_exceptions=True)

    async def _work(self, service: Service) -> None:
        """Execute agent runs as they come, all at the same time. Hold back the rest."""
        steps = {**RUN_STEPS, AGENT: AgentRunStep(configure(self.arm))}
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                if self.model.error is not None:
                    raise self.model.error
                for ticket in await waiting_tickets(service.runtime, service.tenant_id):
                    running.add(asyncio.create_task(self._execute(service, ticket, steps)))
                for task in [each for each in running if each.done()]:
                    running.remove(task)
                    task.result()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _execute(self, service: Service, ticket: Ticket, steps: Any) -> None:
        async with service.runtime.sessions.for_tenant(service.tenant_id) as session:
            run = await get_run(session, ticket.run_id)
        assert run is not None
        if run.kind != AGENT:
            self.held.append(ticket)
            return
        agent_run_id = run.input["agent_run_id"]
        call_name.set(await self._name_of(agent_run_id))
        await process_ticket(service.runtime, ticket, steps)
        self.progress[UUID(agent_run_id)].set()

    def _name_of(self, agent_run_id: str) -> asyncio.Future[str]:
        future = asyncio.get_running_loop().create_future()
        return self.names.setdefault(UUID(agent_run_id), future)

    async def _answer(self, service: Service, arm: str, question: Question) -> Answered:
        """Create the run, answer what it asks, and wait for its end."""
        created = await service.api.post(URL, json=to_request(arm, question, self.asked.name))
        created.raise_for_status()
        run_id = created.json()["id"]
        url, name, progress = f"{URL}/{run_id}", f"{arm} {question.id}", self.progress[UUID(run_id)]
        self._name_of(run_id).set_result(name)
        asked, for_nothing, facts = 0, 0, list(question.facts)
        while True:
            await progress.wait()
            progress.clear()
            run = (await service.api.get(url)).json()
            if run["state"] in ENDED:
                break
            if run["state"] == "waiting":
                asked += 1
                for_nothing += not facts and question.type != "none"
                opened = run["intervention"]
                said = answer_as_person(opened["options"], facts)
                answer = f"{url}/interventions/{opened['id']}/answer"
                (await service.api.post(answer, json=said)).raise_for_status()
        events = (await service.api.get(f"{url}/events")).text
        calls = [call for call in self.model.used if call.name == name]
        tokens = sum(each.input_tokens + each.output_tokens for each in calls)
        steps = events.count("event: step_started")
        return Answered(question, run, asked, for_nothing, len(calls), tokens, steps)

    async def _learn(self, service: Service, answered: Sequence[Answered]) -> None:
        """Say of each answer whether it is right, and learn from that by the rules, one run after
        the other: so a repetition learns the same.
        """
        by_rules = replace(service.runtime, llm=None)
        order: dict[str, int] = {}
        for place, each in enumerate(answered):
            verdict: dict[str, Any] = {"feedback": "right" if each.is_right else "wrong"}
            if not each.is_right and each.question.type != "none":
                verdict["answer"] = each.question.expected
            url = f"{URL}/{each.run['id']}/feedback"
            if each.run["state"] != "cancelled":
                (await service.api.post(url, json=verdict)).raise_for_status()
            order |= {each.run["id"]: place, str(each.run["trace_id"]): place}
        tickets = [*self.held, *await waiting_tickets(service.runtime, service.tenant_id)]
        self.held = []
        places: dict[UUID, int] = {}
        async with service.runtime.sessions.for_tenant(service.tenant_id) as session:
            for ticket in tickets:
                run = await get_run(session, ticket.run_id)
                assert run is not None
                about = run.input.get("agent_run_id") or str(run.trace_id)
                places[ticket.run_id] = order.get(about, len(order))
        tickets.sort(key=lambda each: places[each.run_id])
        while tickets:
            for ticket in tickets:
                await process_ticket(by_rules, ticket)
            tickets = await waiting_tickets(service.runtime, service.tenant_id)


async def load_collections(service: Service, loaded: QuestionSet) -> None:
    for name, description in loaded.collections.items():
        body = {"name": name, "description": description, "chunk_tokens": 128}
        (await service.api.post("/api/v1/collections", json=body)).raise_for_status()
    for (collection, name), text in loaded.documents.items():
        added = await service.api.post(
            f"/api/v1/collections/{collection}/documents",
            params={"source": f"{name}.md"},
            content=text.encode(),
        )
        added.raise_for_status()
    await service.work()


def to_request(arm: str, question: Question, playbook: str) -> dict[str, Any]:
    """The body of the request: a plan of the arm, or none for GRACE, which has the playbook."""
    body: dict[str, Any] = {"query": question.query}
    if arm in ("grace", "again"):
        return body | {"playbook": playbook}
    search = {"step_id": 1, "action": "rag_search", "description": "Search."}
    answer = {"step_id": 2, "action": "reasoning", "description": "Answer.", "depends_on": [1]}
    loop = {"step_id": 1, "action": "run_legacy_agent", "description": "Work on the question."}
    return body | {"plan": {"steps": [search, answer] if arm == "one_search" else [loop]}}


def configure(arm: str) -> GraceConfig:
    """The default settings, without limits that a reader cannot meet. Only GRACE plans again."""
    changes: dict[str, dict[str, Any]] = {
        "executor": {"step_timeout_seconds": PATIENCE_SECONDS, "cooldown_seconds": 0},
        "intervention": {"timeout_seconds": 0},
    }
    if arm in ("one_search", "react"):
        changes["executor"]["max_replans"] = 0
    config = load_config()
    sections = {name: getattr(config, name).model_copy(update=each)
                for name, each in changes.items()}  # fmt: skip
    return config.model_copy(update=sections)


def answer_as_person(options: Sequence[str], facts: list[str]) -> dict[str, str]:
    """What the person says: the next fact, which is removed from `facts`, if there is a place for
    it.
    """
    place = next((each for each in ("input", "modify") if each in options), None)
    if facts and place:
        return {"action": place, "input": facts.pop(0)}
    return {"action": "proceed" if "proceed" in options else "skip"}
