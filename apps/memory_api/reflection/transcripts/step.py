"""How to learn from a transcript (S4): as from a trace, with its rules as insights, and with
verdicts also without citations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.llm.model_session import ModelSession
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.playbooks.bullet_rows import is_active, sections_of, to_bullets
from memory_api.playbooks.citations import extract_cited_ids
from memory_api.playbooks.queries import get_playbook, list_bullets_as_of
from memory_api.reflection.bullet_usage import MIN_OVERLAP, UsedBullet, lexical_overlap
from memory_api.reflection.context import ReflectionInput
from memory_api.reflection.schemas import ReflectionResult
from memory_api.reflection.step import Lessons, SavedLessons, TraceLearner
from memory_api.reflection.transcripts.schemas import (
    ReflectOnTranscriptResponse,
    TranscriptInsight,
    TranscriptTag,
)
from memory_api.runs.tables import RunRow
from memory_api.trace_analysis.facts import Fact
from memory_api.traces.schemas import Event, EventType

TRANSCRIPT = "transcript"
"""The kind of run."""
RECORD_VERDICTS, CITED_IDS = "record_verdicts", "cited_ids"
"""Keys of the run's input: whether to record verdicts, and the citations that the client sent."""
FIRST_TRACE_ID = "counts_with"
"""In a trace's metadata: the trace of the same session that was sent first. Verdicts are counted
for that one.
"""


@dataclass(frozen=True)
class TranscriptInput(ReflectionInput):
    """`cited` are the citations of the session, including unknown ones. `other_bullets` are the
    active bullets that it does not name, if it has no citation.
    """

    cited: Sequence[str] = ()
    other_bullets: Sequence[UsedBullet] = ()


class TranscriptLearner(TraceLearner):
    """Learns from the trace that a transcript became."""

    kind = TRANSCRIPT

    async def load(self, session: AsyncSession, run: RunRow) -> TranscriptInput:
        base = await super().load(session, run)
        sent: list[str] | None = run.input.get(CITED_IDS)
        playbook = await get_playbook(session, base.playbook) if base.playbook else None
        input = TranscriptInput(**{name: getattr(base, name) for name in base.__dataclass_fields__})
        if playbook is None or playbook.deleted_at is not None:
            cited = sent or find_citations(base.context.events)
            return replace(input, playbook=None, used_bullets=(), served_texts={}, cited=cited)
        slugs = [section.slug for section in sections_of(playbook)]
        cited = find_citations(base.context.events, slugs) if sent is None else sent
        rows = await list_bullets_as_of(session, playbook.scope_id)
        active = {
            bullet.id: UsedBullet(bullet.id, bullet, "cited", None, row.memory_id)
            for bullet, row in zip(to_bullets(rows), rows, strict=True)
            if is_active(bullet)
        }
        used = [bullet for bullet in base.used_bullets if bullet.key in active]
        keys = {bullet.key for bullet in used}
        others = () if cited else [item for key, item in active.items() if key not in keys]
        return replace(input, used_bullets=used, cited=cited, other_bullets=others)

    async def generate(
        self, input: ReflectionInput, facts: Sequence[Fact], model: ModelSession | None
    ) -> Lessons:
        """Without any citation, the bullets that overlap with the agent's own words count as used,
        for a model.
        """
        assert isinstance(input, TranscriptInput)
        bullets = [item.bullet for item in input.other_bullets]
        overlap = await asyncio.to_thread(lexical_overlap, input.context.events, bullets)
        matched = [item for item in input.other_bullets if overlap[item.key] >= MIN_OVERLAP]
        used = [*input.used_bullets, *matched]
        lessons = await super().generate(replace(input, used_bullets=used), facts, model)
        return replace(lessons, tagged_bullets=used)

    def to_lesson(
        self, input: ReflectionInput, draft: MemoryDraft, result: ReflectionResult | None
    ) -> MemoryDraft:
        return replace(draft, kind=MemoryKind.INSIGHT)

    def response(
        self, input: ReflectionInput, lessons: Lessons, saved: SavedLessons
    ) -> ReflectOnTranscriptResponse:
        assert isinstance(input, TranscriptInput)
        own = lessons.of_result[:1]
        reflections = saved.of(own)
        return ReflectOnTranscriptResponse(
            analysis=own[0].content if own else "",
            bullet_tags=[
                TranscriptTag(name=each.key, tag=each.tag, rationale=each.reason)
                for each in lessons.tags
            ],
            cited_ids=list(input.cited),
            run_id=input.run.id,
            trace_id=input.trace.id,
            counted_bullet_keys=list(
                dict.fromkeys(item.key for item in saved.recorded if item.is_counted)
            ),
            insights=[
                TranscriptInsight(
                    memory_id=saved.lessons[draft.id].memory_id,
                    content=draft.content,
                    new=saved.lessons[draft.id].is_new,
                )
                for draft in lessons.strategies
                if draft.id in saved.lessons
            ],
            event_count=len(input.context.events),
            reflection_id=reflections[0].memory_id if reflections else None,
            engine=lessons.engine,
            next_run_id=saved.next_run_id,
        )

    def records_verdicts(self, input: ReflectionInput) -> bool:
        return input.run.input.get(RECORD_VERDICTS, True)

    def verdict_trace_id(self, input: ReflectionInput) -> UUID:
        first: str | None = input.trace.metadata_.get(FIRST_TRACE_ID)
        return UUID(first) if first else input.trace.id


def find_citations(events: Sequence[Event], slugs: Sequence[str] = ()) -> list[str]:
    """The bullets that the agent cited. `slugs` are those of the playbook's sections."""
    texts = [e.content for e in events if e.event_type is EventType.LLM_RESPONSE]
    return extract_cited_ids(({"role": "assistant", "content": text} for text in texts), slugs)
