"""The analysis of `ReflectorAgent` (S1): a trajectory and the bullets it used in; insights and
verdicts out. By the rules, or by a model in several rounds. No database.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from memory_api.core.secret_redaction import redact
from memory_api.core.telemetry import get_logger
from memory_api.library.reflector_prompt import (
    ModelInsights,
    SingleVerdict,
)
from memory_api.llm.errors import LLMError, LLMUnparseable
from memory_api.llm.model_session import ModelSession
from memory_api.llm.port import LLMRequest
from memory_api.llm.prompts import PromptMessages
from memory_api.llm.structured_output import request_structured
from memory_api.llm.wrappers import MeteredLLM
from memory_api.memories.index.drafts import fingerprint
from memory_api.playbooks.models import Bullet
from memory_api.reflection.evidence import Evidence, analyze
from memory_api.reflection.fact_text import fact_sentences
from memory_api.reflection.model_output import (
    ModelVerdict,
    validate_verdicts,
)
from memory_api.reflection.rules import context_language, reflect_by_rules
from memory_api.reflection.trajectories.conversion import (
    to_insight,
    trajectory_error,
    trajectory_events,
    trajectory_outcome,
)
from memory_api.reflection.trajectories.schemas import (
    BulletEvaluation,
    Insight,
    Trajectory,
    TrajectoryResult,
)
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.trace_analysis.facts import Fact
from memory_api.traces.schemas import OutcomeType

log = get_logger(__name__)

MAX_INSIGHTS = 10
"""Insights of one trajectory, in all rounds together."""
MAX_SINGLE_VERDICT_CALLS = 20
"""Bullets that get a model call of their own because the analysis left them out."""
MAX_CONCURRENT_CALLS = 4


def insights_by_rules(context: ReflectionContext, facts: Sequence[Fact]) -> list[Insight]:
    """One insight for each strategy that follows from the facts. They show no root cause."""
    result = reflect_by_rules(context, facts)
    if result is None:
        return []
    return [to_insight(context, result, strategy) for strategy in result.rules]


@dataclass(frozen=True)
class TrajectoryInput:
    """What is analyzed. `bullets` are those that the trajectory used; `context` and `found` are
    its trace and the facts of it.
    """

    trajectory: Trajectory
    context: ReflectionContext
    found: Sequence[Fact]
    ground_truth: str = ""
    test_report: str = ""
    dataset: str = ""
    bullets: Sequence[Bullet] = ()

    @property
    def facts(self) -> list[str]:
        """What the code knows about the trajectory, as sentences."""
        return fact_sentences(self.found, context_language(self.context))


async def trajectory_input(
    trajectory: Trajectory,
    ground_truth: str = "",
    test_report: str = "",
    dataset: str = "",
    bullets: Sequence[Bullet] = (),
) -> TrajectoryInput:
    """The input for a trajectory without a stored trace."""
    outcome = trajectory_outcome(trajectory, ground_truth, test_report)
    context = ReflectionContext(
        events=trajectory_events(trajectory),
        outcome=outcome or OutcomeType.PARTIAL,
        tenant_id="",
        error=trajectory_error(trajectory),
        task_description=trajectory.query or None,
    )
    found = await analyze(context, Evidence((), ground_truth or None, test_report or None))
    return TrajectoryInput(trajectory, context, found, ground_truth, test_report, dataset, bullets)


class PromptSource(Protocol):
    """`ReflectorPromptBuilder`, or what asks with the prompts of another builder."""

    def question(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        used_bullets: Sequence[Bullet],
        dataset: str,
        previous_insights: Sequence[Insight] | None = None,
        *,
        facts: Sequence[str] = (),
    ) -> PromptMessages: ...

    def evaluation_question(
        self, trajectory: Trajectory, ground_truth: str, bullet: Bullet, dataset: str = ""
    ) -> PromptMessages: ...


Evaluations = Sequence[BulletEvaluation]


@dataclass(frozen=True)
class OwnParts:
    """Parts of the analysis that its caller replaces. `extract_insights` reads the insights of a
    reply, `evaluate_bullets` gives the verdicts on all used bullets.
    """

    extract_insights: Callable[[str], Sequence[Insight]] | None = None
    evaluate_bullets: Callable[[], Evaluations | Awaitable[Evaluations]] | None = None


@dataclass(frozen=True)
class TrajectoryAnalysis:
    """`failure` is why a later round, or the verdict on one bullet, is missing. A failed
    call of the first round is raised instead.
    """

    result: TrajectoryResult
    engine: str = "rules"
    failure: LLMError | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None


async def analyze_trajectory(
    input: TrajectoryInput,
    builder: PromptSource,
    model: ModelSession | None = None,
    *,
    max_iterations: int = 1,
    own: OwnParts | None = None,
) -> TrajectoryAnalysis:
    """Analyze by the rules, or by a model: in at most `max_iterations` rounds, until a round adds
    nothing. Raises the model's `LLMError`.
    """
    own = own or OwnParts()
    if model is None:
        insights = insights_by_rules(input.context, input.found)
        analysis = TrajectoryAnalysis(_to_result(input, insights, (), round_count=1))
    else:
        rounds = _RefinementRounds(input, builder, model, own)
        analysis = await rounds.run(max(1, max_iterations))
    if own.evaluate_bullets is None or not input.bullets:
        return analysis
    return await _with_own_evaluations(analysis, own.evaluate_bullets)


async def _with_own_evaluations(
    analysis: TrajectoryAnalysis,
    evaluate: Callable[[], Evaluations | Awaitable[Evaluations]],
) -> TrajectoryAnalysis:
    """The analysis with the verdicts of `evaluate`; without any if it fails. A plain function may
    block, for example in `LLMClient.invoke`, so it runs in a thread.
    """
    try:
        evaluations = await asyncio.to_thread(evaluate)
        if inspect.isawaitable(evaluations):
            evaluations = await evaluations
        update = {"bullet_evaluations": list(evaluations)}
        result = TrajectoryResult.model_validate(analysis.result.model_dump() | update)
    except Exception as error:
        failure = _to_llm_error(error, "The evaluation of the bullets")
        result = analysis.result.model_copy(update={"bullet_evaluations": []})
        return replace(analysis, result=result, failure=failure)
    return replace(analysis, result=result)


class _RefinementRounds:
    """The model calls about one trajectory, and what they brought so far."""

    def __init__(
        self,
        input: TrajectoryInput,
        builder: PromptSource,
        model: ModelSession,
        own: OwnParts | None = None,
    ) -> None:
        self.input = input
        self.builder = builder
        self.own = own or OwnParts()
        self.llm = MeteredLLM(model.llm)
        self.model = replace(model, llm=self.llm)
        self.insights: list[Insight] = []
        self.verdicts: dict[str, ModelVerdict] = {}
        self.known_insights: set[bytes] = set()
        self.prompt_hash: str | None = None
        self.failure: LLMError | None = None

    async def run(self, max_rounds: int) -> TrajectoryAnalysis:
        round_count = 0
        while round_count < max_rounds:
            try:
                is_new = await self._run_round()
            except Exception as error:
                if not round_count and not isinstance(error, LLMUnparseable):
                    raise
                # An unreadable answer has no insights; the bullets still get their verdicts. The
                # earlier rounds are still valid, whatever went wrong in this one.
                self.failure = _to_llm_error(error, f"Round {round_count + 1}")
                break
            round_count += 1
            if not is_new or len(self.insights) >= MAX_INSIGHTS:
                break
        if self.own.evaluate_bullets is None:
            missing = [b for b in self.input.bullets if b.id not in self.verdicts]
            await self.judge_one_by_one(missing[:MAX_SINGLE_VERDICT_CALLS])
        result = _to_result(
            self.input,
            self.insights[:MAX_INSIGHTS],
            self.ordered_verdicts(),
            round_count=round_count,
        )
        return TrajectoryAnalysis(result, "llm", self.failure, self.prompt_hash, self.llm.usage())

    def ordered_verdicts(self) -> list[ModelVerdict]:
        """In the order of the bullets."""
        return [self.verdicts[b.id] for b in self.input.bullets if b.id in self.verdicts]

    async def _run_round(self) -> bool:
        """One model call; whether it brought a new insight."""
        input = self.input
        messages = self.builder.question(
            input.trajectory,
            input.ground_truth,
            input.test_report,
            input.bullets,
            input.dataset,
            self.insights,
            facts=input.facts,
        )
        request = to_request(self.model, messages, "reflect")
        self.prompt_hash = self.prompt_hash or request.prompt_hash
        if self.own.extract_insights is None:
            answer, _ = await request_structured(self.llm, ModelInsights, request)
            self._add_verdicts(answer.bullet_evaluations, messages)
            insights: Sequence[Insight] = answer.insights
        else:
            reply = await self.llm.complete(request)
            insights = self.own.extract_insights(reply.text)
        count_before = len(self.insights)
        for insight in insights:
            text_id = fingerprint(insight.key_insight)
            if insight.key_insight.strip() and text_id not in self.known_insights:
                self.known_insights.add(text_id)
                self.insights.append(_redact(insight))
        return len(self.insights) > count_before

    def _add_verdicts(
        self, evaluations: Iterable[BulletEvaluation], messages: PromptMessages
    ) -> None:
        verdicts = [ModelVerdict(key=e.bullet_id, tag=e.tag, reason=e.reason) for e in evaluations]
        for verdict in validate_verdicts(verdicts, messages.bullet_keys, messages.variable_text):
            self.verdicts.setdefault(verdict.key, verdict)

    async def judge_one_by_one(self, bullets: Sequence[Bullet]) -> None:
        """One model call per bullet. A bullet without an answer has no verdict, and after a failed
        call there are no more. An unreadable answer is not a failed call.
        """
        slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

        async def judge(bullet: Bullet) -> None:
            async with slots:
                if self.failure is None or isinstance(self.failure, LLMUnparseable):
                    await self._judge_bullet(bullet)

        await asyncio.gather(*map(judge, bullets))

    async def _judge_bullet(self, bullet: Bullet) -> None:
        input = self.input
        messages = self.builder.evaluation_question(
            input.trajectory, input.ground_truth, bullet, input.dataset
        )
        try:
            answer, _ = await request_structured(
                self.llm, SingleVerdict, to_request(self.model, messages, "judge")
            )
        except Exception as error:
            self.failure = _to_llm_error(error, f"The verdict on {bullet.id}")
            return
        self._add_verdicts([BulletEvaluation(bullet_id=bullet.id, **answer.model_dump())], messages)


async def judge_bullets(
    input: TrajectoryInput, builder: PromptSource, model: ModelSession
) -> list[BulletEvaluation]:
    """A verdict on each of the input's bullets, by one model call each."""
    rounds = _RefinementRounds(input, builder, model)
    await rounds.judge_one_by_one(input.bullets)
    return _to_evaluations(rounds.ordered_verdicts())


def _to_llm_error(error: Exception, part: str) -> LLMError:
    """Log the failure of a part of the analysis, and return it as the cause of a partial result."""
    if isinstance(error, LLMError):
        log.warning("analysis_incomplete", part=part, code=error.code)
        return error
    log.error("analysis_incomplete", part=part, error=type(error).__name__, exc_info=error)
    return LLMError(f"{part} failed: {type(error).__name__}.")


def to_request(model: ModelSession, messages: PromptMessages, purpose: str) -> LLMRequest:
    return model.request(
        messages.messages,
        cache_prefix=messages.cache_prefix,
        purpose=purpose,
        prompt_hash=messages.hash,
    )


def _to_result(
    input: TrajectoryInput,
    insights: Sequence[Insight],
    verdicts: Iterable[ModelVerdict],
    *,
    round_count: int,
) -> TrajectoryResult:
    return TrajectoryResult(
        insights=list(insights),
        bullet_evaluations=_to_evaluations(verdicts),
        trajectory_query=input.trajectory.query,
        trajectory_dataset=input.trajectory.dataset or input.dataset,
        iteration_count=round_count,
    )


def _to_evaluations(verdicts: Iterable[ModelVerdict]) -> list[BulletEvaluation]:
    return [BulletEvaluation(bullet_id=v.key, tag=v.tag, reason=v.reason) for v in verdicts]


def _redact(insight: Insight) -> Insight:
    return Insight(**{name: redact(text).text for name, text in insight.model_dump().items()})
