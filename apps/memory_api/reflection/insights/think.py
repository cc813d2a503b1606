"""Spec 1's reflector as a function: a trajectory and the bullets it used in; insights and verdicts
out. No database, no HTTP but the model's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from apps.memory_api.core.redaction import redact
from apps.memory_api.llm.counted import Counted
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.llm.port import LLMRequest
from apps.memory_api.llm.structured import ask
from apps.memory_api.memory.prepare import fingerprint
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.reflection.evidence import Evidence
from apps.memory_api.reflection.findings.find import find
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.insights.answer import OneVerdict, ReflectorAnswer
from apps.memory_api.reflection.insights.prompt import ReflectorPromptBuilder
from apps.memory_api.reflection.insights.rules import insights_by_rules
from apps.memory_api.reflection.insights.schemas import (
    BulletEvaluation,
    Insight,
    ReflectionResult,
    Trajectory,
)
from apps.memory_api.reflection.insights.trace import context_of
from apps.memory_api.reflection.mind import Mind
from apps.memory_api.reflection.prompt import Question
from apps.memory_api.reflection.response import BulletVerdict
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.reflection.trust import borrowed, sound, written

log = structlog.get_logger()

MOST_INSIGHTS = 10
"""Of one trajectory, all rounds together."""
MOST_ASKED = 20
"""Bullets that are asked about alone, when the analysis left them out."""
AT_ONCE = 4


@dataclass(frozen=True)
class Case:
    """What is reflected on. `bullets` are those the trajectory used; `context` and `evidence` what
    rules read, by default the trajectory alone; `lessons` what is known of such tasks.
    """

    trajectory: Trajectory
    ground_truth: str = ""
    test_report: str = ""
    dataset: str = ""
    bullets: Sequence[Bullet] = ()
    context: ReflectionContext | None = None
    evidence: Evidence | None = None
    lessons: Sequence[str] = ()

    def read(self) -> tuple[ReflectionContext, Findings]:
        """The run as rules see it, and what they find in it."""
        context = self.context or context_of(self.trajectory, self.ground_truth, self.test_report)
        known = self.evidence or Evidence((), self.ground_truth or None, self.test_report or None)
        found = find(
            context,
            attempts=known.attempts,
            ground_truth=known.ground_truth,
            test_report=known.test_report,
        )
        return context, found


@dataclass(frozen=True)
class Analysis:
    """What came of it. `failure` is why a later round, or a question about one bullet, is missing;
    the first round's failure is raised. `found` is what rules found.
    """

    result: ReflectionResult
    found: Findings
    engine: str = "rules"
    failure: LLMError | None = None
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None


async def analyse(
    case: Case,
    builder: ReflectorPromptBuilder,
    mind: Mind | None = None,
    *,
    max_iterations: int = 1,
) -> Analysis:
    """Reflect by rules, or by a model in at most `max_iterations` rounds, the last of which brought
    nothing new. Raises the model's `LLMError`.
    """
    context, found = await asyncio.to_thread(case.read)
    if mind is None:
        return Analysis(_result(case, insights_by_rules(context, found), (), rounds=1), found)
    rounds = _Rounds(case, builder, mind, found, written(context))
    return await rounds.go(max(1, max_iterations))


class _Rounds:
    """One conversation with a model about one case."""

    def __init__(
        self,
        case: Case,
        builder: ReflectorPromptBuilder,
        mind: Mind,
        found: Findings,
        given: Sequence[str] = (),
    ) -> None:
        self.given = given
        self.case = case
        self.builder = builder
        self.llm = Counted(mind.llm)
        self.mind = replace(mind, llm=self.llm)
        self.found = found
        self.insights: list[Insight] = []
        self.verdicts: dict[str, BulletVerdict] = {}
        self.known: set[bytes] = set()
        self.hash: str | None = None
        self.failure: LLMError | None = None

    async def go(self, most: int) -> Analysis:
        done = 0
        while done < most:
            try:
                new = await self._round()
            except LLMError as error:
                if not done:
                    raise
                log.warning("reflection_round_failed", round=done + 1, code=error.code)
                self.failure = error  # what the rounds before found stays found
                break
            done += 1
            if not new or len(self.insights) >= MOST_INSIGHTS:
                break
        left_out = [b for b in self.case.bullets if b.id not in self.verdicts]
        await self.ask_about(left_out[:MOST_ASKED])
        told = [self.verdicts[b.id] for b in self.case.bullets if b.id in self.verdicts]
        result = _result(self.case, self.insights[:MOST_INSIGHTS], told, rounds=done)
        return Analysis(result, self.found, "llm", self.failure, self.hash, self.llm.usage())

    async def _round(self) -> bool:
        """One analysis; whether it brought an insight that was not there."""
        case = self.case
        asked = self.builder.question(
            case.trajectory,
            case.ground_truth,
            case.test_report,
            case.bullets,
            case.dataset,
            self.insights,
            findings=self.found.as_json(),
            lessons=case.lessons,
        )
        request = request_of(self.mind, asked, "reflect")
        self.hash = self.hash or request.prompt_hash
        answer, _ = await ask(self.llm, ReflectorAnswer, request)
        self._judge(answer.bullet_evaluations, asked)
        before = len(self.insights)
        for insight in answer.insights:
            same = fingerprint(insight.key_insight)
            if await asyncio.to_thread(borrowed, insight.key_insight, self.given):
                log.warning("insight_repeats_the_trajectory")
                continue
            if insight.key_insight.strip() and same not in self.known:
                self.known.add(same)
                self.insights.append(_without_secrets(insight))
        return len(self.insights) > before

    def _judge(self, given: Iterable[BulletEvaluation], asked: Question) -> None:
        said = [BulletVerdict(key=e.bullet_id, tag=e.tag, reason=e.reason) for e in given]
        for verdict in sound(said, asked.keys, asked.shown):
            self.verdicts.setdefault(verdict.key, verdict)

    async def ask_about(self, bullets: Sequence[Bullet]) -> None:
        """Ask about each bullet alone. One without an answer stays without a verdict."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def about(bullet: Bullet) -> None:
            async with slots:
                if self.failure is None:
                    await self._ask_about_one(bullet)

        await asyncio.gather(*map(about, bullets))

    async def _ask_about_one(self, bullet: Bullet) -> None:
        case = self.case
        asked = self.builder.evaluation_question(
            case.trajectory, case.ground_truth, bullet, case.dataset
        )
        try:
            answer, _ = await ask(self.llm, OneVerdict, request_of(self.mind, asked, "judge"))
        except LLMError as error:
            log.warning("bullet_not_judged", bullet_id=bullet.id, code=error.code)
            self.failure = error
            return
        self._judge([BulletEvaluation(bullet_id=bullet.id, **answer.model_dump())], asked)


async def judge_bullets(
    case: Case, builder: ReflectorPromptBuilder, mind: Mind
) -> list[BulletEvaluation]:
    """A verdict on each of the case's bullets, each asked about alone."""
    rounds = _Rounds(case, builder, mind, Findings("en", ""))
    await rounds.ask_about(case.bullets)
    return _evaluations(rounds.verdicts.values())


def request_of(mind: Mind, asked: Question, purpose: str) -> LLMRequest:
    """A question as it is sent."""
    return mind.request(asked.messages, fixed=asked.fixed, purpose=purpose, prompt_hash=asked.hash)


def _result(
    case: Case, insights: Sequence[Insight], verdicts: Iterable[BulletVerdict], *, rounds: int
) -> ReflectionResult:
    return ReflectionResult(
        insights=list(insights),
        bullet_evaluations=_evaluations(verdicts),
        trajectory_query=case.trajectory.query,
        trajectory_dataset=case.trajectory.dataset or case.dataset,
        iteration_count=rounds,
    )


def _evaluations(verdicts: Iterable[BulletVerdict]) -> list[BulletEvaluation]:
    return [BulletEvaluation(bullet_id=v.key, tag=v.tag, reason=v.reason) for v in verdicts]


def _without_secrets(insight: Insight) -> Insight:
    return Insight(**{name: redact(text).text for name, text in insight.model_dump().items()})
