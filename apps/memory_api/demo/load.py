"""Loads the recorded history into a tenant of its own, on the paths that every client uses: traces,
learning runs, verdicts and settings are written by the code of the service.

Only two things differ. A recording answers in place of a model (`recorded_model.py`). And each item
happens now; when all are done, the times of the tenant's rows are moved to the days of the history
(`dates.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from operator import itemgetter
from uuid import UUID

from memory_api.auth.identity import Identity, KeyScope
from memory_api.bootstrap import build_runtime
from memory_api.budgets.accounting import AccountedLLM
from memory_api.budgets.ledger import to_row
from memory_api.budgets.queries import insert_llm_call
from memory_api.core.db import Sessions, open_engine
from memory_api.core.settings import Settings
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.demo.dates import Clock
from memory_api.demo.handbook import Handbook, load_questions
from memory_api.demo.history import DAYS, Desk, Json
from memory_api.demo.local_queue import LocalQueue
from memory_api.demo.recorded_model import CallLog, RecordedModel
from memory_api.embeddings.registry import open_default_embedder
from memory_api.memories.schemas import MemoryStatus
from memory_api.playbooks.editing.edits import require_bullet, update_settings
from memory_api.playbooks.effects.holdout import is_advice_held_out
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.proposals.review import apply_or_propose
from memory_api.playbooks.queries import ensure_playbook
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.retrieval.queries import load_retrieval_secret
from memory_api.playbooks.retrieval.retrieve import (
    RenderedPlaybook,
    RenderOptions,
    render_playbook,
)
from memory_api.playbooks.sections import initial_sections
from memory_api.playbooks.verdicts.quarantine import QUARANTINE_ACTOR
from memory_api.playbooks.verdicts.record import NewVerdict, submit_verdict
from memory_api.runtime import Runtime
from memory_api.traces.intake import TraceIntake
from memory_api.traces.schemas import CreateTraceRequest, ReflectMode
from memory_api.traces.storage import prepare_trace

PROJECT = "default"


@dataclass
class Loader:
    """Loads the items of all desks and the questions, by day. `clock` learns when each happened."""

    runtime: Runtime
    queue: LocalQueue
    caller: Identity
    clock: Clock
    model: RecordedModel
    calls: CallLog
    handbook: Handbook
    scope_ids: dict[str, int] = field(default_factory=dict[str, int])
    """Playbook → its scope."""
    trace_ids: dict[str, UUID] = field(default_factory=dict[str, UUID])
    other_advice_count: int = 0
    """Runs that get other bullets than the agent of the recording had: the service of today may
    activate a bullet earlier or later.
    """

    async def load(self, desks: Sequence[Desk], on_day: Callable[[int], None]) -> None:
        self.clock.begin(-0.1)
        for desk in desks:
            await self._create_playbook(desk)
        await self.handbook.load()
        events = [
            (item["day"], partial(self._load_item, desk, item))
            for desk in desks
            for item in desk.items
        ]
        events += [(asked["day"], partial(self.handbook.ask, asked)) for asked in load_questions()]
        for day, load in sorted(events, key=itemgetter(0)):
            self.clock.begin(day)
            on_day(int(day))
            await load()
        async with self.runtime.sessions.for_tenant(self.caller.tenant_id) as session:
            for call in self.calls.finished:
                await insert_llm_call(session, to_row(call.record, call.reservation_id))
        self.clock.begin(DAYS)

    async def _load_item(self, desk: Desk, item: Json) -> None:
        if item["type"] == "run":
            await self._run(desk, item)
        elif item["type"] == "curate":
            await self._curate()
        elif item["type"] == "verdict":
            await self._verdict(desk, item)
        else:
            await self._propose(desk, item)

    async def _create_playbook(self, desk: Desk) -> None:
        sections = initial_sections(self.runtime.settings, desk.playbook)
        async with self.runtime.sessions.for_tenant(self.caller.tenant_id) as session:
            playbook = await ensure_playbook(session, _ref(desk), sections)
        self.scope_ids[desk.playbook] = playbook.scope_id

    async def _curate(self) -> None:
        while self.queue.curations:
            self.queue.tickets.append(self.queue.curations.popleft())
            await self.queue.process(self.runtime)
            async with self.runtime.sessions.for_tenant(self.caller.tenant_id) as session:
                tenant = {"tenant": self.caller.tenant_id}
                rows = await fetch_rows(
                    session, load_statement("demo/demo.sql", "bullet_keys"), tenant
                )
                self.model.keys.update((row.title, row.key) for row in rows)

    async def _run(self, desk: Desk, run: Json) -> None:
        session_id = await self._session(desk, run)
        block = await self._render(desk, run, session_id)
        served = {bullet.id for bullet in block.bullets}
        answer = {"event_type": "llm_response", "content": run["answer"]}
        trace = CreateTraceRequest.model_validate(
            {
                "playbook": desk.playbook,
                "external_id": run["name"],
                "task_key": run["task_key"],
                "task_description": run["task"],
                "query": run["task"],
                "outcome": run["outcome"],
                "error": {"error_message": run["error"]} if run["error"] else None,
                "events": [*run["events"], answer],
                "tools": desk.tools,
                "session_id": session_id,
                "retrieval_id": block.retrieval_id,
                "used_bullet_keys": [key for key in self._keys(run["used"]) if key in served],
                "metadata": run["usage"] or {},
            }
        )
        new = await prepare_trace(trace, self.caller.tenant_id, PROJECT, None)
        intake = TraceIntake(self.runtime, self.caller, _mode(run))
        async with self.runtime.sessions.for_tenant(self.caller.tenant_id) as session:
            receipt = await intake.accept(session, new, sanitized=False)
        self.trace_ids[run["name"]] = receipt.trace_id
        await self.queue.process(self.runtime)

    async def _render(self, desk: Desk, run: Json, session_id: str) -> RenderedPlaybook:
        """The agent asks for advice. It gets what the service renders on this day."""
        options = RenderOptions(query_text=run["task"], session_id=session_id)
        block = await render_playbook(self.runtime, self.caller.tenant_id, _ref(desk), options)
        if {bullet.id for bullet in block.bullets} != set(self._keys(run["advice"] or ())):
            self.other_advice_count += 1
        return block

    async def _session(self, desk: Desk, run: Json) -> str:
        """A session that the hold-out draws for the side on which the run was recorded."""
        secret = await load_retrieval_secret(self.runtime.sessions, self.caller.tenant_id)
        scope_id = self.scope_ids[desk.playbook]
        share, is_control = self.runtime.settings.advice_holdout_share, run["advice"] is None
        names = (f"{run['name']}-{number}" for number in count(1))
        return next(
            name
            for name in names
            if is_advice_held_out(secret, scope_id, name, share) == is_control
        )

    async def _verdict(self, desk: Desk, verdict: Json) -> None:
        """A person judges the bullets that agents get: no longer one that was quarantined."""
        key = self.model.keys[verdict["bullet"]]
        async with self.runtime.sessions.for_tenant(self.caller.tenant_id) as session:
            bullet = await require_bullet(session, _ref(desk), key)
        if bullet.status != MemoryStatus.ACTIVE:
            return
        new = NewVerdict(
            key,
            verdict["tag"],
            "human",
            reason=verdict["reason"],
            trace_id=self.trace_ids[verdict["run"]],
            actor=verdict["actor"],
        )
        await submit_verdict(self.runtime, self.caller.tenant_id, _ref(desk), new)

    async def _propose(self, desk: Desk, item: Json) -> None:
        """From now on, a person reviews the changes of the playbook, and one waits."""
        tenant_id, ref = self.caller.tenant_id, _ref(desk)
        settings = {"review_mode": "required"}
        await update_settings(self.runtime, tenant_id, ref, settings, ChangeAuthor(item["actor"]))
        fields = ("title", "when_to_use", "content", "reasoning")
        delta = DeltaContextItem(
            type="UPDATE",
            bullet_id=self.model.keys[item["bullet"]],
            **{name: item[name] for name in fields if name in item},
        )
        author = ChangeAuthor(QUARANTINE_ACTOR, item["reason"])
        await apply_or_propose(self.runtime, tenant_id, ref, [delta], author)

    def _keys(self, titles: Iterable[str]) -> list[str]:
        """The keys of the bullets that exist here, too."""
        return [self.model.keys[title] for title in titles if title in self.model.keys]


@asynccontextmanager
async def open_loader(
    settings: Settings, url: str, desks: Sequence[Desk], tenant_id: UUID, key_id: UUID, clock: Clock
) -> AsyncGenerator[Loader]:
    """A loader with the role of the worker."""
    options = {
        "trusted_feedback": "error,ground_truth",  # the desks check the results
        "reflection_batch_size": 1,
        "reflective_memory_enabled": True,
        "reflective_memory_mode": "lite",
        "curation_interval": 0,
        "advice_holdout_share": 0.5,  # each task was recorded with advice and without it
    }
    settings = settings.model_copy(update=options)
    engine = open_engine(url, pool_size=4, synchronous_commit=False)  # loaded again after a crash
    sessions, queue = Sessions(engine), LocalQueue()
    model, calls = RecordedModel(desks), CallLog()
    embedder = open_default_embedder(settings)
    runtime = build_runtime(settings, sessions, embedder, queue, AccountedLLM(model, calls))
    caller = Identity(tenant_id, key_id, frozenset({KeyScope.ADMIN}))
    handbook = Handbook(replace(runtime, llm=None), queue, caller, PROJECT)
    try:
        yield Loader(runtime, queue, caller, clock, model, calls, handbook)
    finally:
        await runtime.embedding_models.embedder_cache.aclose()
        await sessions.close()


def _mode(run: Json) -> ReflectMode:
    """What was reflected on is recorded; a failed run without a recorded reflection is stored."""
    if run["reflection"]:
        return "always"
    return "auto" if run["outcome"] == "success" and run["advice"] else "never"


def _ref(desk: Desk) -> PlaybookRef:
    return PlaybookRef(PROJECT, desk.playbook)
