"""The run `trajectory`: load it, reflect on it, save insights and verdicts. No transaction is open
while it thinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.core.prompts import load as load_prompt
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.prepare import Draft, prepare
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.playbook.compose import new_sections
from apps.memory_api.playbook.evaluate import Verdict
from apps.memory_api.playbook.queries import ensure_playbook
from apps.memory_api.playbook.recognise import recognise
from apps.memory_api.playbook.rows import Place
from apps.memory_api.reflection import rules
from apps.memory_api.reflection.findings.scores import confidence, evidence_of, importance
from apps.memory_api.reflection.hints import hints
from apps.memory_api.reflection.insights.prompt import BUILTIN, ReflectorPromptBuilder
from apps.memory_api.reflection.insights.schemas import Insight, Trajectory
from apps.memory_api.reflection.insights.think import Analysis, Case, analyse
from apps.memory_api.reflection.insights.wire import Failed, TrajectoryAnswer
from apps.memory_api.reflection.known import related_lessons
from apps.memory_api.reflection.material import Material, load
from apps.memory_api.reflection.onward import to_curator
from apps.memory_api.reflection.response import BulletVerdict
from apps.memory_api.reflection.run import mind_of
from apps.memory_api.reflection.store import Kept, keep
from apps.memory_api.reflection.used import UsedBullet, use_of
from apps.memory_api.reflection.verdicts import (
    by_model,
    by_rules,
    prepare_verdicts,
    save_verdicts,
    settle_verdicts,
)
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.tables import Trace

TRAJECTORY = "trajectory"
"""The kind of run."""
ROUNDS = "max_iterations"
"""In its input."""
SOURCE = "reflector_agent"
USED = ("named", "cited")
"""A bullet that was only served is not one that the trajectory used."""


@dataclass(frozen=True)
class Loaded:
    """A trajectory as it is stored, and the bullets it used."""

    run: Run
    material: Material
    place: Place | None
    used: Sequence[UsedBullet]
    served: Mapping[str, str]
    """What the playbook told it: key → text."""


async def reflect_trajectory(runtime: Runtime, run: Run) -> TrajectoryAnswer:
    """Do a run that is held, and finish it with its answer. Raises `LeaseLost`, and the model's
    `LLMError`.
    """
    tenant_id, run_id = run.tenant_id, run.id
    async with runtime.sessions.tenant(tenant_id) as session:
        loaded = await _load(session, run)
    lessons = await related_lessons(runtime, tenant_id, loaded.material.context)
    analysis = await analyse(
        _case(loaded, lessons),
        _builder(runtime, loaded.material.trace),
        mind_of(runtime, loaded.material, run_id),
        max_iterations=loaded.run.input.get(ROUNDS, 1),
    )
    said = [
        BulletVerdict(key=e.bullet_id, tag=e.tag, reason=e.reason)
        for e in analysis.result.bullet_evaluations
    ]
    verdicts = [
        *by_rules(loaded.material, loaded.used, analysis.found, run_id),
        *by_model(loaded.material, loaded.used, said, run_id),
    ]
    ready = await prepare_verdicts(runtime, tenant_id, loaded.place, verdicts)
    new = [i for i in analysis.result.insights if recognise(i.key_insight, loaded.served) is None]
    rows = [_draft(loaded, analysis, insight) for insight in new]
    items = await prepare(await runtime.embedder_of(tenant_id), rows)
    async with runtime.sessions.tenant(tenant_id) as session:
        tally = await save_verdicts(session, loaded.material.trace, ready)
        kept = await keep(session, items)
        step = await _go_on(runtime, session, loaded, analysis, verdicts, kept)
        stored = {i.key_insight: k for i, k in zip(new, kept, strict=True)}
        answer = _answer(loaded, analysis, stored, step)
        await runs.finish(
            session,
            run,
            answer.model_dump(mode="json"),
            engine=analysis.engine,
            degraded_by=analysis.failure,
            prompt_hash=analysis.prompt_hash,
            usage=analysis.usage,
        )
    await settle_verdicts(runtime, tenant_id, run_id, tally)
    return answer


async def _load(session: AsyncSession, run: Run) -> Loaded:
    if run.trace_id is None:
        raise NotFound
    material = await load(session, run.trace_id)
    trace = material.trace
    use = await use_of(session, trace, material.context.events)
    used = [one for one in use.bullets if one.how in USED]
    return Loaded(run, material, use.place, used, use.told)


def _case(loaded: Loaded, lessons: Sequence[str]) -> Case:
    trace = loaded.material.trace
    trajectory = Trajectory(
        query=trace.query or "",
        generated_answer=trace.generated_answer or "",
        reasoning_steps=trace.reasoning_steps or [],
        used_bullet_ids=trace.used_keys,
        dataset=trace.playbook or "",
    )
    return Case(
        trajectory,
        trace.ground_truth or "",
        trace.test_report or "",
        trace.playbook or "",
        [one.bullet for one in loaded.used],
        loaded.material.context,
        loaded.material.evidence,
        lessons,
    )


def _builder(runtime: Runtime, trace: Trace) -> ReflectorPromptBuilder:
    """The builder with the prompts that apply to this trace's playbook."""
    settings = runtime.settings

    def find(name: str, dataset: str) -> str:
        return load_prompt(
            f"reflector/{name}",
            tenant=str(trace.tenant_id),
            playbook=trace.playbook,
            operator=settings.prompts_dir,
            builtin=BUILTIN[name],
        ).text

    return ReflectorPromptBuilder(find=find, budget=settings.llm_prompt_tokens)


def _draft(loaded: Loaded, analysis: Analysis, insight: Insight) -> Draft:
    """Scores and tags are those of rules: a model could be told them by the trajectory."""
    trace, context = loaded.material.trace, loaded.material.context
    evidence = evidence_of(analysis.found)
    category = rules.category_of(analysis.found, context)
    tags = rules.tags_of(analysis.found, context)
    return Draft(
        kind=Kind.INSIGHT,
        project_id=trace.project_id,
        content=insight.key_insight,
        tags=tags if trace.outcome else tags[1:],  # the first is the outcome
        importance=importance(context.outcome, evidence),
        confidence=confidence(evidence),
        source=SOURCE,
        error_category=category.value if category else None,
        outcome=trace.outcome,
        session_id=trace.session_id,
        trace_id=trace.id,
        metadata=insight.model_dump() | {"playbook": trace.playbook, "engine": analysis.engine},
        actor=f"engine:{SOURCE}",
        run_id=loaded.run.id,
    )


async def _go_on(
    runtime: Runtime,
    session: AsyncSession,
    loaded: Loaded,
    analysis: Analysis,
    verdicts: Sequence[Verdict],
    kept: Sequence[Kept],
) -> Run | None:
    """The next step, queued: the curator of the playbook looks at the insights, and at what the run
    says of the bullets that are there.
    """
    trace, context = loaded.material.trace, loaded.material.context
    said = hints(loaded.used, verdicts, analysis.found, context.outcome, trace_id=trace.id)
    place = loaded.place
    if place is None and trace.playbook and kept:  # nobody can hold a lock on what is not there
        place = Place(trace.project_id, trace.playbook)
        await ensure_playbook(session, place, new_sections(runtime.settings, place.name))
    return await to_curator(
        runtime, session, loaded.run, place, [one.memory_id for one in kept], said
    )


def _answer(
    loaded: Loaded, analysis: Analysis, kept: Mapping[str, Kept], step: Run | None
) -> TrajectoryAnswer:
    failure = analysis.failure
    insights = analysis.result.insights
    return TrajectoryAnswer(
        **analysis.result.model_dump(),
        run_id=loaded.run.id,
        trace_id=loaded.material.trace.id,
        insight_ids=[
            kept[i.key_insight].memory_id if i.key_insight in kept else None for i in insights
        ],
        engine=analysis.engine,
        degraded=failure is not None,
        error=Failed(code=failure.code, message=failure.detail) if failure else None,
        next_run_id=step.id if step else None,
    )
