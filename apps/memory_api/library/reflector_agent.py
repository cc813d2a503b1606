"""`ReflectorAgent` (S1).

agent = ReflectorAgent(llm_client, ReflectorPromptBuilder(), PlaybookStore())
result = agent.run(trajectory, ground_truth, test_report, dataset)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from memory_api.core.secret_redaction import redact, redact_value
from memory_api.core.telemetry import failure_fields, get_logger
from memory_api.library.blocking import require_no_event_loop
from memory_api.library.llm_client import LLMClient
from memory_api.library.reflector_prompt import (
    SingleVerdict,
    analyze_trajectory,
    parse_analysis,
    parse_answer,
)
from memory_api.llm.port import LLM
from memory_api.memories.index.drafts import fingerprint
from memory_api.playbooks.citations import resolve_citations
from memory_api.playbooks.models import Bullet, Playbook
from memory_api.reflection.model_output import ModelVerdict, validate_verdicts
from memory_api.reflection.rules import reflect_by_rules
from memory_api.reflection.trajectories.conversion import to_insight
from memory_api.reflection.trajectories.schemas import (
    BulletEvaluation,
    Insight,
    Trajectory,
    TrajectoryResult,
)

log = get_logger(__name__)
ReflectionResult = TrajectoryResult
"""The name of S1. `memory_api.reflection.schemas.ReflectionResult` is the result of S5."""
MAX_INSIGHTS = 10
"""Insights of one trajectory, in all rounds together."""
MAX_SINGLE_VERDICT_CALLS = 20
"""Bullets that get a model call of their own because the analysis left them out."""
MAX_TOKENS = 4096
"""Of one answer of a model that is not given as a client."""


class TemplateClient(Protocol):
    """`LLMClient` or your own class."""

    def invoke_with_template(self, template: str, variables: Mapping[str, str]) -> str: ...


class PlaybookSource(Protocol):
    """Loads playbooks: `PlaybookStore` or your own class."""

    def load(self, dataset: str) -> Playbook: ...


class PromptBuilder(Protocol):
    """`ReflectorPromptBuilder` or your own class."""

    def build(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        used_bullets: Sequence[Bullet],
        dataset: str,
        previous_insights: Sequence[Insight] | None = None,
    ) -> str: ...
    def build_evaluation_prompt(
        self, trajectory: Trajectory, ground_truth: str, bullet: Bullet
    ) -> str: ...


class ReflectorAgent:
    """Derives insights and bullet verdicts from a trajectory.

    `llm_client` is an `LLMClient`, an object with its `invoke_with_template`, a model, or None.
    With None the rules engine reflects and gives no verdicts. Raises TypeError for an object that
    lacks a part. Several threads may call `run` of one agent at the same time.

    One model call gives insights and verdicts; the bullets that it leaves out get a call each. A
    subclass may override `_resolve_bullets`, `_extract_insights` and `_evaluate_bullets`. The last
    one is then asked about all used bullets.
    """

    def __init__(
        self,
        llm_client: TemplateClient | LLM | None,
        prompt_builder: PromptBuilder,
        playbook_store: PlaybookSource,
    ) -> None:
        if hasattr(llm_client, "complete"):
            llm_client = LLMClient(cast(LLM, llm_client), purpose="reflect", max_tokens=MAX_TOKENS)
        if llm_client is not None:
            _require_methods("llm_client", llm_client, "invoke_with_template")
        _require_methods("prompt_builder", prompt_builder, "build", "build_evaluation_prompt")
        _require_methods("playbook_store", playbook_store, "load")
        self.llm_client = cast("TemplateClient | None", llm_client)
        self.prompt_builder = prompt_builder
        self.playbook_store = playbook_store

    def run(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        dataset: str,
        max_iterations: int = 1,
    ) -> TrajectoryResult:
        """The analysis of a trajectory. Without a dataset there are no bullets.

        Logs every error. The result is then empty with `iteration_count` 0, or that of the earlier
        rounds if a later round fails. Raises RuntimeError inside an event loop and nothing else.
        """
        require_no_event_loop("`arun`")
        try:
            return self._run(trajectory, ground_truth, test_report, dataset, max_iterations)
        except Exception as error:
            log.warning("reflector_failed", dataset=dataset, **failure_fields(error))
            return TrajectoryResult(
                insights=[],
                bullet_evaluations=[],
                trajectory_query=str(getattr(trajectory, "query", "")),
                trajectory_dataset=str(getattr(trajectory, "dataset", "") or dataset),
                iteration_count=0,
            )

    async def arun(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        dataset: str,
        max_iterations: int = 1,
    ) -> TrajectoryResult:
        """`run` in a thread, for asynchronous code."""
        return await asyncio.to_thread(
            self.run, trajectory, ground_truth, test_report, dataset, max_iterations
        )

    def _run(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        dataset: str,
        max_iterations: int,
    ) -> TrajectoryResult:
        trajectory = _redact_trajectory(trajectory)
        ground_truth, test_report = redact(ground_truth).text, redact(test_report).text
        playbook = self.playbook_store.load(dataset) if dataset else Playbook()
        bullets = self._resolve_bullets(trajectory.used_bullet_ids, playbook)
        insights: dict[bytes, Insight] = {}
        evaluations: dict[str, BulletEvaluation] = {}
        round_count, is_new = 0, True
        if self.llm_client is None:
            _add(insights, _insights_by_rules(trajectory, ground_truth, test_report))
            round_count, is_new = 1, False
        while is_new and round_count < max(1, max_iterations) and len(insights) < MAX_INSIGHTS:
            prompt = self.prompt_builder.build(
                trajectory, ground_truth, test_report, bullets, dataset, list(insights.values())
            )
            try:
                text = self._ask(prompt)
            except Exception as error:
                if round_count == 0:
                    raise
                _log_failure(f"round {round_count + 1}", error)
                break
            analysis, found = parse_analysis(text), self._extract_insights(text)
            if analysis is None and not found:
                break  # an unreadable answer; the bullets still get their verdicts
            for each in _valid(analysis.bullet_evaluations if analysis else (), bullets, prompt):
                evaluations.setdefault(each.bullet_id, each)
            is_new = _add(insights, found)
            round_count += 1
        return TrajectoryResult(
            insights=list(insights.values())[:MAX_INSIGHTS],
            bullet_evaluations=self._judge(trajectory, ground_truth, bullets, evaluations),
            trajectory_query=trajectory.query,
            trajectory_dataset=trajectory.dataset or dataset,
            iteration_count=round_count,
        )

    def _judge(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        bullets: Sequence[Bullet],
        known: Mapping[str, BulletEvaluation],
    ) -> list[BulletEvaluation]:
        """The known verdicts and those that are missing, in the order of the bullets; those of
        `_evaluate_bullets` alone if a subclass overrides it.
        """
        is_own = type(self)._evaluate_bullets is not ReflectorAgent._evaluate_bullets
        asked = [each for each in bullets if is_own or each.id not in known]
        if not asked:
            return [known[each.id] for each in bullets]
        try:
            judged = self._evaluate_bullets(trajectory, ground_truth, asked)
        except Exception as error:
            _log_failure("the verdicts", error)
            judged = []
        if is_own:
            return judged
        by_id = {**known, **{each.bullet_id: each for each in judged}}
        return [by_id[each.id] for each in bullets if each.id in by_id]

    def _ask(self, prompt: str) -> str:
        assert self.llm_client is not None
        return self.llm_client.invoke_with_template("{prompt}", {"prompt": prompt})

    def _extract_insights(self, llm_response: str) -> list[Insight]:
        """The insights in a model's reply; none if it cannot be parsed."""
        analysis = parse_analysis(llm_response)
        return [] if analysis is None else analysis.insights

    def _evaluate_bullets(
        self, trajectory: Trajectory, ground_truth: str, used_bullets: Sequence[Bullet]
    ) -> list[BulletEvaluation]:
        """One verdict per bullet, each from its own model call; none without a model. A bullet
        whose answer cannot be read has no verdict, and after a failed call there are no more.
        """
        evaluations: list[BulletEvaluation] = []
        for bullet in used_bullets[: MAX_SINGLE_VERDICT_CALLS if self.llm_client else 0]:
            prompt = self.prompt_builder.build_evaluation_prompt(trajectory, ground_truth, bullet)
            try:
                verdict = parse_answer(SingleVerdict, self._ask(prompt))
            except Exception as error:
                _log_failure(f"the verdict on {bullet.id}", error)
                break
            if verdict is not None:
                evaluation = BulletEvaluation(bullet_id=bullet.id, **verdict.model_dump())
                evaluations += _valid([evaluation], [bullet], prompt)
        return evaluations

    def _resolve_bullets(self, bullet_ids: Sequence[str], playbook: Playbook) -> list[Bullet]:
        """The bullets with these IDs, each once, in the order of the IDs. Unknown IDs are skipped
        and logged.
        """
        bullets = {bullet.id: bullet for bullet in playbook.bullets}
        key_by_citation = resolve_citations(bullet_ids, bullets)
        if unknown_ids := [name for name in bullet_ids if name not in key_by_citation]:
            log.warning("unknown_bullets_skipped", bullet_ids=unknown_ids[:20])
        return [bullets[key] for key in dict.fromkeys(key_by_citation.values())]


def _insights_by_rules(
    trajectory: Trajectory, ground_truth: str, test_report: str
) -> list[Insight]:
    """One insight for each strategy that follows from the facts. They show no root cause."""
    context, facts = analyze_trajectory(trajectory, ground_truth, test_report)
    result = reflect_by_rules(context, facts)
    return [to_insight(context, result, rule) for rule in result.rules] if result else []


def _add(insights: dict[bytes, Insight], found: Iterable[Insight]) -> bool:
    """Add what is not empty and not known yet, without secrets. Whether there is any."""
    count = len(insights)
    for each in found:
        if each.key_insight.strip():
            texts = {name: redact(text).text for name, text in each.model_dump().items()}
            insights.setdefault(fingerprint(each.key_insight), Insight(**texts))
    return len(insights) > count


def _valid(
    evaluations: Iterable[BulletEvaluation], bullets: Sequence[Bullet], prompt: str
) -> list[BulletEvaluation]:
    """The verdicts on these bullets whose reason is not copied from the prompt."""
    given = [ModelVerdict(key=e.bullet_id, tag=e.tag, reason=e.reason) for e in evaluations]
    verdicts = validate_verdicts(given, [bullet.id for bullet in bullets], prompt)
    return [BulletEvaluation(bullet_id=v.key, tag=v.tag, reason=v.reason) for v in verdicts]


def _log_failure(part: str, error: Exception) -> None:
    log.warning("analysis_incomplete", part=part, **failure_fields(error))


def _require_methods(name: str, given: object, *methods: str) -> None:
    """Raises TypeError if the object lacks one of the methods."""
    for method in methods:
        if not callable(getattr(given, method, None)):
            raise TypeError(f"`{name}` has no method `{method}`: {type(given).__name__}.")


def _redact_trajectory(trajectory: Trajectory) -> Trajectory:
    texts: dict[str, Any] = trajectory.model_dump(
        include={"query", "generated_answer", "reasoning_steps", "error_message"}
    )
    return trajectory.model_copy(update=redact_value(texts)[0])
