"""The run `workflow`: answer a query with the help of a playbook, and keep what happened as a
trace. When somebody reports how it turned out, that trace is learnt from like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.core.prompts import load as load_prompt
from apps.memory_api.core.prompts import render
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.counted import Counted
from apps.memory_api.llm.errors import LLMError, LLMRefused, LLMTruncated
from apps.memory_api.llm.port import LLMRequest, Message
from apps.memory_api.memory.find import Filters
from apps.memory_api.memory.schemas import Status
from apps.memory_api.playbook.citations import extract_cited_ids
from apps.memory_api.playbook.errors import NoPlaybook
from apps.memory_api.playbook.rows import Place, to_bullet
from apps.memory_api.playbook.schemas import Playbook, SearchQuery, SearchResult
from apps.memory_api.playbook.serve import search_bullets
from apps.memory_api.playbook.servings import ServingLog
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.ingest import add_events
from apps.memory_api.traces.queries import get_trace
from apps.memory_api.traces.schemas import Event, EventType
from apps.memory_api.traces.stream import end_untold
from apps.memory_api.workers.answer_wire import WorkflowAnswer
from apps.memory_api.workers.workflow import BUILTIN, PROMPT, ReflectionWorkflow

WORKFLOW = "workflow"
"""The kind of run."""
NOTHING = "The playbook holds nothing on this."
"""What rules answer when the search finds nothing."""


@dataclass
class Desk:
    """The service as the three parts that the workflow works with, for one run."""

    runtime: Runtime
    tenant_id: UUID
    run_id: UUID
    place: Place
    servings: ServingLog
    or_rules: bool
    render_id: UUID | None = None
    results: list[SearchResult] = field(default_factory=list[SearchResult])
    engine: str = "rules"
    failure: LLMError | None = None
    usage: dict[str, Any] | None = None

    async def load(self, dataset: str) -> Playbook:
        """The rows stay where they are: the search reads them there."""
        return Playbook()

    async def search(self, query: SearchQuery, playbook: Playbook) -> list[SearchResult]:
        """The bullets that matter, as a render chooses them: one bad verdict takes none away. None
        where there is no such playbook yet.
        """
        filters = Filters(
            sections=query.section_filter or (), tags=query.tags, status=Status(query.status)
        )
        try:
            found = await search_bullets(
                self.runtime,
                self.servings,
                self.tenant_id,
                self.place,
                query.query_text,
                top_k=query.top_k,
                filters=filters,
                harmless=True,
            )
        except NoPlaybook:
            return []
        self.render_id = found.render_id
        self.results = [
            SearchResult(
                bullet=to_bullet(hit.memory),
                vector_score=hit.vector_score,
                bm25_score=hit.bm25_score,
                combined_score=hit.combined_score,
            )
            for hit in found.hits
        ]
        return self.results

    async def invoke_with_template(self, template: str, variables: Mapping[str, str]) -> str:
        """The model's answer; without a model the bullets themselves, which do not pretend to be
        one.
        """
        if self.runtime.llm is None:
            return self._by_rules()
        counted = Counted(self.runtime.llm)
        settings = self.runtime.settings
        request = LLMRequest(
            (Message("user", render(template, variables)),),
            max_tokens=settings.llm_max_tokens,
            timeout=settings.llm_timeout,
            purpose=WORKFLOW,
            tenant_id=self.tenant_id,
            run_id=self.run_id,
        )
        try:
            reply = await counted.complete(request)
            if reply.finish_reason == "refusal":
                raise LLMRefused(reply.text)
            if reply.finish_reason == "length":
                raise LLMTruncated("The answer was cut off.")
        except LLMError as error:
            if not self.or_rules:
                raise
            self.failure, self.usage = error, counted.usage()
            return self._by_rules()
        self.engine, self.usage = "llm", counted.usage()
        return reply.text

    def _by_rules(self) -> str:
        lines = [f"- {result.bullet.content} [{result.bullet.id}]" for result in self.results]
        return "\n".join(lines) or NOTHING


async def answer_query(runtime: Runtime, run: Run, *, or_rules: bool = False) -> WorkflowAnswer:
    """Do a run that is held, and finish it with its answer. Raises the model's `LLMError`, unless
    `or_rules`.
    """
    tenant_id, run_id = run.tenant_id, run.id
    async with runtime.sessions.tenant(tenant_id) as session:
        trace = await get_trace(session, run.trace_id) if run.trace_id else None
        if trace is None or trace.playbook is None:
            raise NotFound
    servings = ServingLog(runtime.sessions)
    place = Place(trace.project_id, trace.playbook)
    desk = Desk(runtime, tenant_id, run_id, place, servings, or_rules)
    prompt = load_prompt(
        PROMPT,
        tenant=str(tenant_id),
        playbook=place.name,
        operator=runtime.settings.prompts_dir,
        builtin=BUILTIN,
    )
    graph = ReflectionWorkflow(desk, desk, desk, prompt=prompt).build()
    state = await graph.ainvoke({"query": trace.query or "", "dataset": place.name})
    await servings.flush()
    answer = WorkflowAnswer(
        llm_response=state.get("llm_response") or "",
        search_results_count=len(state.get("search_results", [])),
        shown_keys=[result.bullet.id for result in desk.results],
        render_id=desk.render_id,
        trace_id=trace.id,
        run_id=run_id,
        engine=desk.engine,
        degraded=desk.failure is not None,
    )
    async with runtime.sessions.tenant(tenant_id) as session:
        await _keep(session, trace.id, desk, answer)
        await runs.finish(
            session,
            run,
            answer.model_dump(mode="json"),
            engine=desk.engine,
            degraded_by=desk.failure,
            prompt_hash=prompt.hash,
            usage=desk.usage,
        )
    return answer


async def _keep(session: AsyncSession, trace_id: UUID, desk: Desk, answer: WorkflowAnswer) -> None:
    """The rest of the trace: what was served, what was answered, which bullets the answer cites."""
    trace = await get_trace(session, trace_id, for_update=True)
    if trace is None:
        raise NotFound
    kind = EventType.LLM_RESPONSE if desk.engine == "llm" else EventType.SYSTEM_EVENT
    said = Event(event_type=kind, content=answer.llm_response)
    await add_events(session, trace, [said])
    trace.generated_answer, trace.render_id = answer.llm_response, desk.render_id
    slugs = [result.bullet.id.rsplit("-", 1)[0] for result in desk.results]
    if desk.engine == "llm":
        message = {"role": "assistant", "content": answer.llm_response}
        shown = {result.bullet.id for result in desk.results}
        cited = [key for key in extract_cited_ids([message], slugs) if key in shown]
        trace.used_keys = cited
    end_untold(trace)
