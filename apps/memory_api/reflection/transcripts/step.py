"""How to learn from a transcript (S4): one reflection, insights for the playbook, and verdicts on
those of its bullets about which the session shows something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.llm.model_session import ModelSession
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.playbooks.bullet_rows import sections_of, to_bullet
from memory_api.playbooks.citations import extract_cited_ids, resolve_citations
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.queries import get_playbook, list_all_bullets
from memory_api.playbooks.retrieval.prompt_block import format_playbook
from memory_api.reflection import rules
from memory_api.reflection.bullet_usage import MIN_OVERLAP, UsedBullet, lexical_overlap
from memory_api.reflection.context import ReflectionInput, load_reflection_input
from memory_api.reflection.model_output import ModelVerdict, validate_verdicts
from memory_api.reflection.pipeline import Learner, Lessons, SavedLessons
from memory_api.reflection.task_lessons import user_rule_drafts
from memory_api.reflection.transcripts.generate import (
    BUILTIN_PROMPT,
    KEY_POINTS_TEMPLATE,
    PROMPT_NAME,
    ModelTranscriptAnalysis,
    TranscriptAnalysis,
    TranscriptTag,
    analyze_transcript,
    insights_by_rules,
)
from memory_api.reflection.transcripts.schemas import (
    ReflectOnTranscriptResponse,
    TranscriptInsight,
)
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.text.terms import estimate_tokens
from memory_api.trace_analysis.facts import Fact
from memory_api.trace_analysis.scores import calculate_confidence, calculate_importance
from memory_api.traces.schemas import Event, EventType

TRANSCRIPT = "transcript"
"""The kind of run."""
RECORD_VERDICTS, CITED_IDS = "record_verdicts", "cited_ids"
"""Keys of the run's input: whether to record verdicts, and the citations that the client sent."""
FIRST_TRACE_ID = "counts_with"
"""In a trace's metadata: the trace of the same session that was sent first. Verdicts are counted
for that one.
"""
SOURCE = "run_reflector"
PLAYBOOK_SHARE = 0.3
"""Part of the prompt's token budget that the playbook may take."""
TOKENS_AROUND_BULLET = 16


@dataclass(frozen=True)
class TranscriptInput(ReflectionInput):
    """`bullets` are all active bullets of the playbook, `memory_ids` their memories by key. `cited`
    are the citations of the session, including unknown ones.
    """

    bullets: Sequence[Bullet] = ()
    memory_ids: Mapping[str, UUID] = field(default_factory=dict[str, UUID])
    cited: Sequence[str] = ()


@dataclass(frozen=True)
class TranscriptLessons(Lessons):
    """`insights` are those of `memories` that are insights."""

    analysis: ModelTranscriptAnalysis = field(kw_only=True)
    insights: Sequence[MemoryDraft] = ()


class TranscriptLearner(Learner[TranscriptInput, TranscriptLessons]):
    """Learns from a transcript: one model call."""

    kind = TRANSCRIPT

    def builtin_prompt(self, name: str) -> str:
        return BUILTIN_PROMPT

    async def load(self, session: AsyncSession, run: RunRow) -> TranscriptInput:
        base = await load_reflection_input(session, run)
        sent: list[str] | None = run.input.get(CITED_IDS)
        playbook = await get_playbook(session, base.playbook) if base.playbook else None
        if playbook is None or playbook.deleted_at is not None:
            cited = sent or find_citations(base.context.events)
            return TranscriptInput(run, base.trace_context, None, [], {}, cited=cited)
        rows = [
            row
            for row in await list_all_bullets(session, playbook.scope_id)
            if row.status == "active"
        ]
        slugs = [section.slug for section in sections_of(playbook)]
        return TranscriptInput(
            run,
            base.trace_context,
            base.playbook,
            base.used_bullets,
            base.served_texts,
            bullets=[to_bullet(row) for row in rows],
            memory_ids={row.key: row.id for row in rows},
            cited=find_citations(base.context.events, slugs) if sent is None else sent,
        )

    async def prepare(
        self,
        runtime: Runtime,
        input: TranscriptInput,
        facts: Sequence[Fact],
        model: ModelSession,
    ) -> TranscriptInput:
        """The model is shown the playbook instead of lessons of similar tasks."""
        return input

    async def generate(
        self, input: TranscriptInput, facts: Sequence[Fact], model: ModelSession | None
    ) -> TranscriptLessons:
        overlap = await asyncio.to_thread(lexical_overlap, input.context.events, input.bullets)
        analysis = await _analyze(input, overlap, facts, model)
        tagged_bullets = _taggable_bullets(input, overlap)
        tags = [
            ModelVerdict(key=tag.name, tag=tag.tag, reason=tag.rationale)
            for tag in analysis.answer.bullet_tags
        ]
        keys = [bullet.key for bullet in tagged_bullets]
        insights = [
            _insight_draft(input, facts, text, analysis)
            for text in analysis.answer.insights
            if not input.is_reused(text)
        ]
        if analysis.engine == "rules":
            quoted = user_rule_drafts(input.trace_context, facts, input.run.id)
            insights += [replace(draft, kind=MemoryKind.INSIGHT) for draft in quoted]
        has_text = analysis.answer.analysis.strip()
        reflections = [_reflection_draft(input, facts, analysis)] if has_text else []
        return TranscriptLessons(
            [*reflections, *insights],
            playbook_lessons=[draft.id for draft in insights if self.records_verdicts(input)],
            tags=validate_verdicts(tags, keys, analysis.shown),
            tagged_bullets=tagged_bullets,
            engine=analysis.engine,
            prompt_hash=analysis.prompt_hash,
            usage=analysis.usage,
            analysis=analysis.answer,
            insights=insights,
        )

    def response(
        self, input: TranscriptInput, lessons: TranscriptLessons, saved: SavedLessons
    ) -> ReflectOnTranscriptResponse:
        """Without a model, the tags are the verdicts of tests and rules."""
        tags = lessons.analysis.bullet_tags
        if lessons.engine == "rules":
            tags = [
                TranscriptTag(name=verdict.key, tag=verdict.tag, rationale=verdict.reason or "")
                for verdict in saved.verdicts
                if verdict.judge in ("test", "rules")
            ]
        insights = {draft.id: draft for draft in lessons.insights}
        reflection_ids = [
            item.memory_id for key, item in saved.lessons.items() if key not in insights
        ]
        return ReflectOnTranscriptResponse(
            analysis=lessons.analysis.analysis,
            bullet_tags=tags,
            cited_ids=list(input.cited),
            run_id=input.run.id,
            trace_id=input.trace.id,
            counted_bullet_keys=list(
                dict.fromkeys(item.key for item in saved.recorded if item.is_counted)
            ),
            insights=[
                TranscriptInsight(
                    memory_id=saved.lessons[key].memory_id,
                    content=draft.content,
                    is_new=saved.lessons[key].is_new,
                )
                for key, draft in insights.items()
            ],
            event_count=len(input.context.events),
            reflection_id=reflection_ids[0] if reflection_ids else None,
            engine=lessons.engine,
            next_run_id=saved.next_run_id,
        )

    def records_verdicts(self, input: TranscriptInput) -> bool:
        return input.run.input.get(RECORD_VERDICTS, True)

    def verdict_trace_id(self, input: TranscriptInput) -> UUID:
        first: str | None = input.trace.metadata_.get(FIRST_TRACE_ID)
        return UUID(first) if first else input.trace.id


def find_citations(events: Sequence[Event], slugs: Sequence[str] = ()) -> list[str]:
    """The bullets that the agent cited. `slugs` are those of the playbook's sections."""
    texts = [e.content for e in events if e.event_type is EventType.LLM_RESPONSE]
    return extract_cited_ids(({"role": "assistant", "content": text} for text in texts), slugs)


async def _analyze(
    input: TranscriptInput,
    overlap: Mapping[str, float],
    facts: Sequence[Fact],
    model: ModelSession | None,
) -> TranscriptAnalysis:
    """The analysis; a model's tags only on bullets that it was shown."""
    if model is None:
        text = rules.fact_text(input.context, facts)
        insights = insights_by_rules(input.context, facts)
        return TranscriptAnalysis(ModelTranscriptAnalysis(analysis=text, insights=insights))
    shown = _choose_bullets(input, overlap, int(model.prompt_tokens * PLAYBOOK_SHARE))
    analysis = await analyze_transcript(
        model,
        model.prompt(PROMPT_NAME),
        input.context.events,
        _format_key_points(shown),
        input.cited,
    )
    known = {bullet.id for bullet in shown}
    key_of = resolve_citations((tag.name for tag in analysis.answer.bullet_tags), known)
    tags = [
        tag.model_copy(update={"name": key_of[tag.name]})
        for tag in analysis.answer.bullet_tags
        if tag.name in key_of
    ]
    return replace(analysis, answer=analysis.answer.model_copy(update={"bullet_tags": tags}))


def _choose_bullets(
    input: TranscriptInput, overlap: Mapping[str, float], token_budget: int
) -> list[Bullet]:
    """The bullets for the prompt, in the playbook's order. If not all fit, used bullets take
    precedence, then those with the largest overlap.
    """
    used = {bullet.key for bullet in input.used_bullets}
    ranked = sorted(input.bullets, key=lambda b: -1.0 if b.id in used else 1 - overlap[b.id])
    chosen: set[str] = set()
    for bullet in ranked:
        text = _key_point_text(bullet)
        token_budget -= estimate_tokens(text) + TOKENS_AROUND_BULLET
        if token_budget < 0 and chosen:
            break
        chosen.add(bullet.id)
    return [bullet for bullet in input.bullets if bullet.id in chosen]


def _format_key_points(bullets: Sequence[Bullet]) -> str:
    sections: dict[str, list[dict[str, Any]]] = {}
    for bullet in bullets:
        counters = {"helpful": bullet.helpful, "harmful": bullet.harmful}
        key_point: dict[str, Any] = {"name": bullet.id, "text": _key_point_text(bullet), **counters}
        sections.setdefault(bullet.section, []).append(key_point)
    return format_playbook({"sections": sections}, KEY_POINTS_TEMPLATE)


def _key_point_text(bullet: Bullet) -> str:
    """The advice on one line, then its title and its condition."""
    labeled = (("title", bullet.title), ("when", bullet.when_to_use))
    notes = "; ".join(f"{label}: {' '.join(text.split())}" for label, text in labeled if text)
    content = " ".join(bullet.content.split())
    return f"{content} ({notes})" if notes else content


def _taggable_bullets(input: TranscriptInput, overlap: Mapping[str, float]) -> list[UsedBullet]:
    """The bullets that the model's tags are recorded on: the used ones, and without any citation
    also those that overlap with the agent's own words.
    """
    bullets = list(input.used_bullets)
    if not input.cited:
        used = {bullet.key for bullet in bullets}
        bullets += [
            UsedBullet(bullet.id, bullet, "cited", None, input.memory_ids[bullet.id])
            for bullet in input.bullets
            if overlap[bullet.id] >= MIN_OVERLAP and bullet.id not in used
        ]
    return bullets


def _reflection_draft(
    input: TranscriptInput, facts: Sequence[Fact], analysis: TranscriptAnalysis
) -> MemoryDraft:
    draft = _draft(input, facts)
    return replace(draft, kind=MemoryKind.REFLECTION, content=analysis.answer.analysis)


def _insight_draft(
    input: TranscriptInput, facts: Sequence[Fact], text: str, analysis: TranscriptAnalysis
) -> MemoryDraft:
    draft = _draft(input, facts)
    metadata = draft.metadata | {"engine": analysis.engine}
    if analysis.engine == "llm":
        metadata |= {"model": analysis.model}
    return replace(draft, content=text, metadata=metadata)


def _draft(input: TranscriptInput, facts: Sequence[Fact]) -> MemoryDraft:
    """An insight without text. Scores and tags come from the rules, because the transcript could
    dictate a model's.
    """
    trace, context = input.trace, input.context
    tags = rules.rule_tags(facts, context)
    return MemoryDraft(
        kind=MemoryKind.INSIGHT,
        project_id=trace.project_id,
        content="",
        tags=tags if trace.outcome else tags[1:],  # the first tag is the outcome
        importance=calculate_importance(context.outcome, facts),
        confidence=calculate_confidence(facts),
        source=SOURCE,
        outcome=trace.outcome,
        session_id=trace.session_id,
        trace_id=trace.id,
        metadata=rules.rule_metadata(context, facts) | {"playbook": trace.playbook},
        actor=f"engine:{SOURCE}",
        run_id=input.run.id,
    )
