"""The run `transcript`: load a session and its playbook, reflect, save the analysis and count the
tags that the session bears out. No transaction is open while it thinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.core.prompts import load as load_prompt
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.fencing import estimate_tokens
from apps.memory_api.memory.prepare import Draft, prepare
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.playbook.citations import extract_cited_ids, resolve
from apps.memory_api.playbook.evaluate import Verdict
from apps.memory_api.playbook.queries import all_bullets, get_playbook
from apps.memory_api.playbook.render import format_playbook
from apps.memory_api.playbook.rows import Place, sections_of, to_bullet
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.reflection import rules
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.findings.scores import confidence, evidence_of, importance
from apps.memory_api.reflection.material import Material, load
from apps.memory_api.reflection.response import BulletVerdict
from apps.memory_api.reflection.run import mind_of
from apps.memory_api.reflection.store import keep
from apps.memory_api.reflection.touch import ENOUGH, touch
from apps.memory_api.reflection.transcripts.reflector import (
    BUILTIN,
    POINTS,
    TEMPLATE,
    BulletTag,
    Reading,
    TranscriptAnswer,
    read_transcript,
    told_by_rules,
)
from apps.memory_api.reflection.transcripts.wire import TranscriptReflection
from apps.memory_api.reflection.trust import sound
from apps.memory_api.reflection.used import UsedBullet, use_of
from apps.memory_api.reflection.verdicts import (
    by_model,
    by_rules,
    prepare_verdicts,
    save_verdicts,
    settle_verdicts,
)
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.schemas import Event, EventType

TRANSCRIPT = "transcript"
"""The kind of run."""
APPLY, CITED = "apply", "cited_ids"
"""In its input: whether to count, and the ids that the sender says were cited."""
COUNTS_WITH = "counts_with"
"""In a trace's metadata: the trace of an earlier state of the same session, whose verdicts these
are too.
"""
SOURCE = "run_reflector"
PLAYBOOK_SHARE = 0.3
"""Of the prompt's budget."""


@dataclass(frozen=True)
class Session:
    """A session as it is stored, its playbook, and what of it was used."""

    run: Run
    material: Material
    place: Place | None
    bullets: Sequence[Bullet]
    ids: dict[str, UUID]
    used: Sequence[UsedBullet]
    cited: Sequence[str]

    @property
    def events(self) -> Sequence[Event]:
        return self.material.context.events


async def reflect_transcript(runtime: Runtime, run: Run) -> TranscriptReflection:
    """Do a run that is held, and finish it with its answer. Raises `LeaseLost`, and the model's
    `LLMError`.
    """
    tenant_id, run_id = run.tenant_id, run.id
    async with runtime.sessions.tenant(tenant_id) as session:
        loaded = await _load(session, run)
    touched = await asyncio.to_thread(touch, loaded.events, loaded.bullets)
    found = await asyncio.to_thread(_find, loaded.material)
    reading = await _read(runtime, loaded, touched, found)
    verdicts = _verdicts(loaded, touched, found, reading)
    if reading.engine == "rules":
        reading = _tagged(reading, verdicts)
    applied = verdicts if loaded.run.input.get(APPLY, True) else []
    ready = await prepare_verdicts(runtime, tenant_id, loaded.place, applied)
    rows = [_draft(loaded, found, reading)] if reading.answer.analysis.strip() else []
    items = await prepare(await runtime.embedder_of(tenant_id), rows)
    async with runtime.sessions.tenant(tenant_id) as session:
        tally = await save_verdicts(session, loaded.material.trace, ready)
        kept = await keep(session, items)
        answer = TranscriptReflection(
            analysis=reading.answer.analysis,
            bullet_tags=reading.answer.bullet_tags,
            cited_ids=list(loaded.cited),
            run_id=run_id,
            trace_id=loaded.material.trace.id,
            counted=list(dict.fromkeys(one.key for one in tally.counted if one.counts)),
            reflection_id=kept[0].memory_id if kept else None,
            engine=reading.engine,
        )
        await runs.finish(
            session,
            run,
            answer.model_dump(mode="json"),
            engine=reading.engine,
            prompt_hash=reading.prompt_hash,
            usage=reading.usage,
        )
    await settle_verdicts(runtime, tenant_id, run_id, tally)
    return answer


async def _load(session: AsyncSession, run: Run) -> Session:
    if run.trace_id is None:
        raise NotFound
    material = await load(session, run.trace_id)
    trace, events = material.trace, material.context.events
    given: list[str] | None = run.input.get(CITED)
    use = await use_of(session, trace, events)
    playbook = await get_playbook(session, use.place) if use.place else None
    if playbook is None or playbook.deleted_at is not None:
        return Session(run, material, None, [], {}, [], given or _cited(events))
    rows = [row for row in await all_bullets(session, playbook.scope) if row.status == "active"]
    slugs = [section.slug for section in sections_of(playbook)]
    return Session(
        run,
        material,
        use.place,
        [to_bullet(row) for row in rows],
        {row.key: row.id for row in rows},
        use.bullets,
        _cited(events, slugs) if given is None else given,
    )


def _cited(events: Sequence[Event], slugs: Sequence[str] = ()) -> list[str]:
    said = [e.content for e in events if e.event_type is EventType.LLM_RESPONSE]
    return extract_cited_ids(({"role": "assistant", "content": text} for text in said), slugs)


def _find(material: Material) -> Findings:
    known = material.evidence
    return find(
        material.context,
        attempts=known.attempts,
        ground_truth=known.ground_truth,
        test_report=known.test_report,
    )


async def _read(
    runtime: Runtime, loaded: Session, touched: dict[str, float], found: Findings
) -> Reading:
    mind = mind_of(runtime, loaded.material, loaded.run.id)
    if mind is None:
        return Reading(TranscriptAnswer(analysis=told_by_rules(loaded.material.context, found)))
    trace = loaded.material.trace
    prompt = load_prompt(
        TEMPLATE,
        tenant=str(trace.tenant_id),
        playbook=trace.playbook,
        operator=runtime.settings.prompts_dir,
        builtin=BUILTIN,
    )
    told = _told(loaded, touched, int(mind.prompt_tokens * PLAYBOOK_SHARE))
    reading = await read_transcript(mind, prompt, loaded.events, _points(told), loaded.cited)
    known = {bullet.id for bullet in told}
    meant = resolve((tag.name for tag in reading.answer.bullet_tags), known)
    tags = [
        tag.model_copy(update={"name": meant[tag.name]})
        for tag in reading.answer.bullet_tags
        if tag.name in meant
    ]
    return replace(reading, answer=reading.answer.model_copy(update={"bullet_tags": tags}))


def _told(loaded: Session, touched: dict[str, float], room: int) -> list[Bullet]:
    """The bullets that the model is shown, in the playbook's order: all that fit, those that were
    used first and then those the session has most to do with.
    """
    first = {one.key: -1.0 for one in loaded.used}
    ranked = sorted(loaded.bullets, key=lambda b: first.get(b.id, 1 - touched[b.id]))
    chosen: set[str] = set()
    for bullet in ranked:
        room -= estimate_tokens(f"{bullet.when_to_use} {bullet.content}") + 16
        if room < 0 and chosen:
            break
        chosen.add(bullet.id)
    return [bullet for bullet in loaded.bullets if bullet.id in chosen]


def _points(bullets: Sequence[Bullet]) -> str:
    sections: dict[str, list[dict[str, Any]]] = {}
    for bullet in bullets:
        text = " ".join(f"{bullet.when_to_use} {bullet.content}".split())
        votes = {"helpful": bullet.helpful, "harmful": bullet.harmful}
        point: dict[str, Any] = {"name": bullet.id, "text": text, **votes}
        sections.setdefault(bullet.section, []).append(point)
    return format_playbook({"sections": sections}, POINTS)


def _verdicts(
    loaded: Session, touched: dict[str, float], found: Findings, reading: Reading
) -> list[Verdict]:
    """Those that may be counted: on bullets that were cited, named or served. When none was cited,
    the model's also on those that the agent's own words have to do with.
    """
    used = list(loaded.used)
    if not loaded.cited:
        known = {one.key for one in used}
        used += [
            UsedBullet(bullet.id, bullet, "cited", None, loaded.ids[bullet.id])
            for bullet in loaded.bullets
            if touched[bullet.id] >= ENOUGH and bullet.id not in known
        ]
    said = [
        BulletVerdict(key=tag.name, tag=tag.tag, reason=tag.rationale)
        for tag in reading.answer.bullet_tags
    ]
    trusted = sound(said, [one.key for one in used], reading.shown)
    trace = loaded.material.trace
    first = UUID(trace.metadata_.get(COUNTS_WITH) or str(trace.id))
    told = [
        *by_rules(loaded.material, loaded.used, found, loaded.run.id),
        *by_model(loaded.material, used, trusted, loaded.run.id),
    ]
    return [replace(verdict, trace_id=first) for verdict in told]


def _tagged(reading: Reading, verdicts: Sequence[Verdict]) -> Reading:
    """Rules' verdicts as tags."""
    tags = [
        BulletTag(name=v.key, tag=v.tag, rationale=v.reason or "")
        for v in verdicts
        if v.judge in ("test", "rules")
    ]
    return replace(reading, answer=reading.answer.model_copy(update={"bullet_tags": tags}))


def _draft(loaded: Session, found: Findings, reading: Reading) -> Draft:
    """Scores and tags are those of rules: a model could be told them by the transcript."""
    trace, context = loaded.material.trace, loaded.material.context
    evidence = evidence_of(found)
    tags = rules.tags_of(found, context)
    return Draft(
        kind=Kind.REFLECTION,
        project_id=trace.project_id,
        content=reading.answer.analysis,
        tags=tags if trace.outcome else tags[1:],  # the first is the outcome
        importance=importance(context.outcome, evidence),
        confidence=confidence(evidence),
        source=SOURCE,
        outcome=trace.outcome,
        session_id=trace.session_id,
        trace_id=trace.id,
        metadata=rules.about(context, found) | {"playbook": trace.playbook},
        actor=f"engine:{SOURCE}",
        run_id=loaded.run.id,
    )
