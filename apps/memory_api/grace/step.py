"""The run `agent`: goes on with an agent run until it ends or waits for a person (S3.7–S3.10).

All state is in rows, and each transaction leaves a state from which another worker can go on:

    queued ─▶ running ─▶ done | failed | cancelled
                │  ▲
                ▼  │ answer or timeout
              waiting
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.collections.queries import list_collections
from memory_api.grace import queries
from memory_api.grace.agent_model import RunOverLimit, RunUsage, open_agent_model
from memory_api.grace.config import GraceConfig, ThresholdSection, load_config
from memory_api.grace.context import CONVERSATION, Experience, find_experience
from memory_api.grace.corrections import Correction, find_corrections
from memory_api.grace.decisions import budget_warning
from memory_api.grace.execution_plan import SEARCH_ACTIONS, ExecutionState
from memory_api.grace.executor import (
    AgentRunCancelled,
    find_next_steps,
    mark_running,
    run_ready_steps,
)
from memory_api.grace.interventions import (
    CONFIRM_PLAN,
    PENDING_QUESTION,
    PENDING_REPLAN,
    PERSON_INPUTS,
    apply_answer,
    enqueue_leg,
)
from memory_api.grace.leg import KnownRows, Leg, describe_plan, read_state, write_plan
from memory_api.grace.outcome import finish_agent_run
from memory_api.grace.plan_changes import answer_again, ask_pending, save_replan
from memory_api.grace.planner import PlanningContext, create_plan
from memory_api.grace.replanning import (
    ReplanContext,
    adds_fact,
    choose_strategy,
    make_replan,
)
from memory_api.grace.tables import AgentRunRow, AgentStepRow
from memory_api.grace.tools.registry import available_tools
from memory_api.llm.errors import LLMOverBudget
from memory_api.llm.untrusted_text import fence_text
from memory_api.playbooks.ref import PlaybookRef
from memory_api.playbooks.retrieval.retrieve import RenderOptions, render_playbook
from memory_api.runs.execution import SaveInTransaction, Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

BULLETS = "bullets"
"""Key of `options`: the block of the playbook and its keys, as they were when the run began."""
BULLET_TOKENS = 500
ENDED = ("done", "failed", "cancelled")
NO_COLLECTION = (
    "Project '{project_id}' has no collection to search. Create one with `hansei collection create"
    " NAME` and add documents to it."
)


@dataclass(frozen=True)
class OpenedAgentRun:
    """The rows of an agent run that goes on, and what its project has learned from feedback."""

    known: KnownRows
    thresholds: ThresholdSection | None = None
    """None without feedback."""
    temperature: float = 1.0


class AgentRunStep(Step[OpenedAgentRun | None, Leg | None, StepResult]):
    """How a run of the kind `agent` is executed. None stands for an agent run that has ended, or
    that another run works on.
    """

    kind = "agent"

    def __init__(self, config: GraceConfig | None = None) -> None:
        self._config = config

    async def load(self, session: AsyncSession, run: RunRow) -> OpenedAgentRun | None:
        agent_run_id = UUID(run.input["agent_run_id"])
        agent_run = await queries.get_agent_run(session, agent_run_id, for_update=True)
        if agent_run is None or not await _may_continue(session, agent_run, run):
            return None
        if agent_run.started_at is None:
            agent_run.started_at = datetime.now(UTC)
        agent_run.state = "running"
        steps = await queries.load_steps(session, agent_run) if agent_run.plan else ()
        known = KnownRows(agent_run, steps)
        learned = await queries.get_calibration(session, agent_run.project_id)
        if learned is None:
            return OpenedAgentRun(known)
        thresholds = ThresholdSection(
            silent=learned.silent, notify=learned.notify, confirm=learned.confirm
        )
        return OpenedAgentRun(known, thresholds, learned.temperature)

    async def compute(
        self, runtime: Runtime, run: RunRow, input: OpenedAgentRun | None
    ) -> Leg | None:
        return None if input is None else _new_leg(runtime, run, input, self._read_config())

    async def store(
        self, runtime: Runtime, run: RunRow, output: Leg | None, save: SaveInTransaction
    ) -> None:
        """Plan, and execute the steps. Each result is stored at once, the last one in the
        transaction that ends the agent run.
        """
        if output is None:
            await super().store(runtime, run, output, save)
            return
        output.save_run = save
        await _go_on(output)
        if not output.has_ended:
            await super().store(runtime, run, output, save)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: Leg | None
    ) -> StepResult:
        model = output.model if output is not None else None
        usage = model.llm.usage() if model is not None else None
        return StepResult(data={"agent_run_id": run.input["agent_run_id"]}, usage=usage)

    async def abandon(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, reason: str
    ) -> None:
        """End the agent run of a run that is out of attempts."""
        agent_run = await queries.get_agent_run(
            session, UUID(run.input["agent_run_id"]), for_update=True
        )
        if agent_run is None or agent_run.active_run_id != run.id or agent_run.state in ENDED:
            return
        error, config = f"The worker could not go on with the run: {reason}", self._read_config()
        await finish_agent_run(runtime, session, agent_run, config, status="failed", error=error)

    def _read_config(self) -> GraceConfig:
        return self._config or load_config()


async def _go_on(leg: Leg) -> None:
    """Go on until the agent run ends or waits."""
    try:
        while await _advance(leg):
            pass
    except AgentRunCancelled:
        await _end(leg, "cancelled")
    except (LLMOverBudget, RunOverLimit) as error:
        await _end(leg, error=str(error))


def _new_leg(runtime: Runtime, run: RunRow, opened: OpenedAgentRun, config: GraceConfig) -> Leg:
    agent_run = opened.known.agent_run
    used = RunUsage(agent_run.token_count, agent_run.cost_usd)
    model = open_agent_model(
        runtime, config, run.tenant_id, agent_run.project_id, agent_run.playbook, run.id, used
    )
    tools = available_tools(config, has_model=model is not None)
    thresholds = opened.thresholds or config.thresholds
    leg = Leg(runtime, run, agent_run.id, config, tools, thresholds, opened.temperature, model)
    leg.known = opened.known
    _use_bullets(leg, agent_run)
    return leg


async def _may_continue(session: AsyncSession, agent_run: AgentRunRow, run: RunRow) -> bool:
    """Whether `run` works on the agent run, and the agent run neither has ended nor waits."""
    if agent_run.active_run_id != run.id or agent_run.state in ENDED:
        return False
    return agent_run.state != "waiting" or await _expire_question(session, agent_run)


async def _expire_question(session: AsyncSession, agent_run: AgentRunRow) -> bool:
    """Answer the open question with its default if its time is over."""
    row = await queries.get_open_intervention(session, agent_run.id)
    if row is None or row.expires_at is None:
        return False
    if row.expires_at > datetime.now(UTC) + timedelta(seconds=1):
        return False
    await apply_answer(session, agent_run, row, row.default_action, None, actor=None)
    return True


def _use_bullets(leg: Leg, agent_run: AgentRunRow) -> None:
    stored: dict[str, Any] = agent_run.options.get(BULLETS) or {}
    leg.bullets, leg.bullet_keys = stored.get("text", ""), stored.get("keys", [])
    leg.corrections = [Correction(**each) for each in stored.get("corrections", [])]


async def _advance(leg: Leg) -> bool:
    """Do the next thing: end, plan, plan again, ask, or run the steps that are ready. False if the
    agent run has ended or waits.
    """
    if leg.has_ended:
        return False
    agent_run, steps = await _known_rows(leg)
    if agent_run.state in (*ENDED, "waiting") or agent_run.active_run_id != leg.run.id:
        return False
    if agent_run.cancel_requested:
        return await _end(leg, "cancelled")
    if agent_run.plan is None and PENDING_REPLAN not in agent_run.options:
        return await _plan(leg, agent_run)
    state = read_state(agent_run, steps)
    if PENDING_REPLAN in agent_run.options:
        return await _replan(leg, agent_run, state)
    if PENDING_QUESTION in agent_run.options or state.plan.requires_confirmation:
        return await ask_pending(leg)
    if state.is_finished:
        return await _end(leg)
    await run_ready_steps(leg, agent_run, state)
    return True


async def _known_rows(leg: Leg) -> tuple[AgentRunRow, Sequence[AgentStepRow]]:
    if leg.known is not None:
        return leg.known.agent_run, leg.known.steps
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        agent_run = await queries.get_agent_run(session, leg.agent_run_id)
        assert agent_run is not None
        steps = await queries.load_steps(session, agent_run) if agent_run.plan else ()
        return agent_run, steps


async def _plan(leg: Leg, agent_run: AgentRunRow) -> bool:
    if agent_run.playbook is not None:
        await _render_bullets(leg, agent_run)
    context = await _planning_context(leg, agent_run)
    plan = await create_plan(context, leg.model)
    if CONFIRM_PLAN in agent_run.options:
        plan = plan.model_copy(update={"requires_confirmation": True})
    searches = {step.action for step in plan.steps if step.action in SEARCH_ACTIONS}
    if searches == {"rag_search"} and not context.collections and not leg.bullets:
        return await _end(leg, error=NO_COLLECTION.format(project_id=agent_run.project_id))
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        current = await leg.lock(session)
        steps = write_plan(current, plan, [])
        session.add_all(steps)
        following = find_next_steps(leg, current, read_state(current, steps)) or []
        events = [("plan_created", describe_plan(plan)), *budget_warning(leg, current)]
        await queries.add_events(session, current, [*events, *mark_running(steps, following)])
    leg.known, leg.started = KnownRows(current, steps), following
    return True


async def _render_bullets(leg: Leg, agent_run: AgentRunRow) -> None:
    """Choose the bullets for this run and store them with it."""
    assert agent_run.playbook is not None
    playbook = PlaybookRef(agent_run.project_id, agent_run.playbook)
    options = RenderOptions(query_text=agent_run.query[:10_000], token_budget=BULLET_TOKENS)
    rendered = await render_playbook(leg.runtime, leg.run.tenant_id, playbook, options)
    keys = list(rendered.block.keys)
    text = fence_text(rendered.block.text, label="playbook") if keys else ""
    # A correction is of a question that stands alone.
    corrections = [] if CONVERSATION in agent_run.options else find_corrections(rendered.bullets)
    stored = {"text": text, "keys": keys, "corrections": [each.to_json() for each in corrections]}
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        current = await leg.lock(session)
        current.retrieval_id = rendered.retrieval_id
        current.options = current.options | {BULLETS: stored}
    leg.bullets, leg.bullet_keys, leg.corrections = text, keys, corrections


async def _planning_context(leg: Leg, agent_run: AgentRunRow) -> PlanningContext:
    chosen, known = set(agent_run.collections), list[Experience]()
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        rows = await list_collections(session, agent_run.project_id)
        collections = [(r.name, r.description) for r in rows if not chosen or r.name in chosen]
        if leg.model is not None or len(collections) > 1:  # otherwise there is nothing to choose
            known = await find_experience(session, agent_run.project_id, agent_run.query)
    return PlanningContext(
        agent_run.query,
        leg.config,
        leg.tools,
        collections,
        leg.bullets,
        leg.bullet_keys,
        [each.describe() for each in known],
        next((each.collection for each in known if each.is_reliable), None),
        corrections=leg.corrections,
        conversation=agent_run.options.get(CONVERSATION, ()),
        person_inputs=agent_run.options.get(PERSON_INPUTS, ()),
    )


async def _replan(leg: Leg, agent_run: AgentRunRow, state: ExecutionState) -> bool:
    """Make the replan that was decided, once the cool-down since the last one is over. What a
    person adds to the answer of a model is written into it instead.
    """
    pending: dict[str, Any] = agent_run.options[PENDING_REPLAN]
    why = ReplanContext(
        pending["trigger"],
        pending.get("step_id"),
        pending.get("error", ""),
        pending.get("feedback", ""),
    )
    if leg.model is not None and adds_fact(why, state):
        return await answer_again(leg, why)
    cooldown = timedelta(seconds=leg.config.executor.cooldown_seconds)
    since = datetime.now(UTC) - agent_run.replanned_at if agent_run.replanned_at else cooldown
    if since < cooldown:
        async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
            current = await leg.lock(session)
            current.state = "queued"
            await enqueue_leg(leg.runtime, session, current, cooldown - since)
        return False
    strategy = choose_strategy(why, state, agent_run.replan_count, leg.config)
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        searched = await queries.list_searches(session, agent_run.id)
    context = replace(await _planning_context(leg, agent_run), searched=searched)
    result = await make_replan(strategy, why, state, context, leg.model)
    await save_replan(leg, why, result)
    return True


async def _end(leg: Leg, status: str | None = None, *, error: str | None = None) -> bool:
    """End the agent run: result, events, and its trace, in one transaction."""
    async with leg.runtime.sessions.for_tenant(leg.run.tenant_id) as session:
        current = await leg.lock(session)
        if error is None and status is None and current.cancel_requested:
            status = "cancelled"
        events = budget_warning(leg, current)
        await leg.end(session, current, status=status, error=error, events=events)
    return False
