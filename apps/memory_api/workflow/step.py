"""The run `workflow` (S2): answer a query with the bullets of a playbook, and store what happened
as a trace. It is a step, not a learner: the trace is learned from once its outcome is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import NotFound
from memory_api.llm.errors import LLMError, LLMRefused, LLMTruncated, may_use_rules
from memory_api.llm.port import LLM, LLMRequest, Message
from memory_api.llm.prompts import Prompt, render_template
from memory_api.llm.untrusted_text import fence_text
from memory_api.llm.wrappers import MeteredLLM
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.search.query import SearchFilters
from memory_api.playbooks.bullet_rows import to_bullets
from memory_api.playbooks.citations import extract_cited_ids
from memory_api.playbooks.errors import PlaybookNotFound
from memory_api.playbooks.models import SearchQuery, SearchResult
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.retrieval.retrieve import search_bullets
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime, load_tenant_prompt
from memory_api.traces.open_traces import close_as_it_is
from memory_api.traces.queries import get_trace
from memory_api.traces.schemas import Event, EventType
from memory_api.traces.storage import add_events
from memory_api.traces.tables import TraceRow
from memory_api.workflow.schemas import RunWorkflowResponse

WORKFLOW = "workflow"
"""The kind of run."""
PROMPT_NAME = "workflow/answer"
NO_ANSWER = "The playbook has no bullet about this."
"""The answer of the rules if the search finds nothing."""


def format_results(results: Sequence[SearchResult]) -> str:
    """One line per bullet, best first: its key, which the model can cite, and its content. Line
    breaks of a content are removed, so that it cannot pose as another bullet.
    """
    return "\n".join(f"[{r.bullet.id}] {' '.join(r.bullet.content.split())}" for r in results)


@dataclass(frozen=True)
class Answer:
    """The answer to a query. `failure` is why the rules stood in for the model."""

    text: str
    results: Sequence[SearchResult]
    retrieval_id: UUID | None
    prompt_hash: str
    engine: str = "rules"
    failure: LLMError | None = None
    usage: dict[str, Any] | None = None


class AnswerStep(Step[TraceRow, Answer, StepResult]):
    """search → generate → complete the trace. With `fall_back_to_rules`, the bullets are the answer
    if the model fails.
    """

    kind = WORKFLOW

    def __init__(self, *, fall_back_to_rules: bool = False) -> None:
        self.fall_back_to_rules = fall_back_to_rules

    async def load(self, session: AsyncSession, run: RunRow) -> TraceRow:
        trace = await get_trace(session, run.trace_id) if run.trace_id else None
        if trace is None or trace.playbook is None:
            raise NotFound
        return trace

    async def compute(self, runtime: Runtime, run: RunRow, input: TraceRow) -> Answer:
        assert input.playbook is not None
        playbook = PlaybookRef(input.project_id, input.playbook)
        prompt = load_tenant_prompt(runtime.settings, PROMPT_NAME, run.tenant_id, playbook.name)
        query = input.query or ""
        retrieval_id, results = await _search(runtime, run.tenant_id, playbook, query)
        by_rules = Answer(_format_as_answer(results), results, retrieval_id, prompt.hash)
        if runtime.llm is None:
            return by_rules
        return await self._ask_model(runtime, runtime.llm, run, prompt, query, by_rules)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: Answer
    ) -> StepResult:
        trace = await get_trace(session, run.trace_id, for_update=True) if run.trace_id else None
        if trace is None:
            raise NotFound
        await _complete_trace(session, trace, output)
        response = RunWorkflowResponse(
            llm_response=output.text,
            search_results_count=len(output.results),
            bullet_keys=[result.bullet.id for result in output.results],
            retrieval_id=output.retrieval_id,
            trace_id=trace.id,
            run_id=run.id,
            engine=output.engine,
            degraded=output.failure is not None,
        )
        return StepResult(
            data=response.model_dump(mode="json"),
            engine=output.engine,
            degraded_by=output.failure,
            prompt_hash=output.prompt_hash,
            usage=output.usage,
        )

    async def _ask_model(
        self,
        runtime: Runtime,
        llm: LLM,
        run: RunRow,
        prompt: Prompt,
        query: str,
        by_rules: Answer,
    ) -> Answer:
        metered = MeteredLLM(llm)
        variables = {
            "context": fence_text(format_results(by_rules.results), label="points"),
            "query": fence_text(query, label="query"),
        }
        request = LLMRequest(
            (Message("user", render_template(prompt.text, variables)),),
            max_tokens=runtime.settings.llm_max_tokens,
            timeout=runtime.settings.llm_timeout,
            purpose=WORKFLOW,
            tenant_id=run.tenant_id,
            project_id=run.project_id,
            run_id=run.id,
        )
        try:
            reply = await metered.complete(request)
            if reply.finish_reason == "refusal":
                raise LLMRefused(reply.text, reply=reply)
            if reply.finish_reason == "length":
                raise LLMTruncated("The answer was cut off.", reply=reply)
        except LLMError as error:
            if not may_use_rules(error, allowed=self.fall_back_to_rules):
                raise
            return replace(by_rules, failure=error, usage=metered.usage())
        return replace(by_rules, text=reply.text, engine="llm", usage=metered.usage())


async def _search(
    runtime: Runtime, tenant_id: UUID, playbook: PlaybookRef, query_text: str
) -> tuple[UUID | None, list[SearchResult]]:
    """The retrieval and its bullets, by the defaults of `SearchQuery`. Nothing if the playbook does
    not exist.
    """
    query = SearchQuery.model_validate({"query_text": query_text})
    filters = SearchFilters(
        sections=query.section_filter or (),
        tags=query.tags,
        status=MemoryStatus(query.status),
        min_confidence=query.min_confidence,
    )
    try:
        found = await search_bullets(
            runtime,
            tenant_id,
            playbook,
            query.query_text,
            top_k=query.top_k,
            filters=filters,
        )
    except PlaybookNotFound:
        return None, []
    bullets = to_bullets(hit.memory._asdict() for hit in found.hits)
    return found.retrieval_id, [
        SearchResult(
            bullet=bullet,
            vector_score=hit.vector_score,
            bm25_score=hit.bm25_score,
            combined_score=hit.combined_score,
        )
        for bullet, hit in zip(bullets, found.hits, strict=True)
    ]


def _format_as_answer(results: Sequence[SearchResult]) -> str:
    lines = [f"- {result.bullet.content} [{result.bullet.id}]" for result in results]
    return "\n".join(lines) or NO_ANSWER


async def _complete_trace(session: AsyncSession, trace: TraceRow, answer: Answer) -> None:
    """Add the answer, the retrieval and the bullets that the model cited, and close the trace."""
    is_model = answer.engine == "llm"
    event_type = EventType.LLM_RESPONSE if is_model else EventType.SYSTEM_EVENT
    await add_events(session, trace, [Event(event_type=event_type, content=answer.text)])
    trace.generated_answer, trace.retrieval_id = answer.text, answer.retrieval_id
    if is_model:
        shown = [result.bullet.id for result in answer.results]
        slugs = [key.rsplit("-", 1)[0] for key in shown]
        cited = extract_cited_ids([{"role": "assistant", "content": answer.text}], slugs)
        trace.used_bullet_keys = [key for key in cited if key in shown]
    close_as_it_is(trace)
