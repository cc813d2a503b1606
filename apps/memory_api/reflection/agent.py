"""`ReflectorAgent` and `ReflectorPromptBuilder`, the library door of spec 1.

agent = ReflectorAgent(llm_client, ReflectorPromptBuilder(), PlaybookStore())
result = agent.run(trajectory, ground_truth, test_report, dataset)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import structlog

from apps.memory_api.core.redaction import redact, redact_value
from apps.memory_api.llm.client import LLMClient
from apps.memory_api.llm.port import LLM
from apps.memory_api.playbook.citations import resolve
from apps.memory_api.playbook.schemas import Bullet, Playbook
from apps.memory_api.reflection.insights.answer import read_insights
from apps.memory_api.reflection.insights.prompt import ReflectorPromptBuilder
from apps.memory_api.reflection.insights.schemas import (
    BulletEvaluation,
    Insight,
    ReflectionResult,
    Trajectory,
)
from apps.memory_api.reflection.insights.think import Case, analyse, judge_bullets
from apps.memory_api.reflection.mind import Mind

__all__ = ["ReflectorAgent", "ReflectorPromptBuilder"]

log = structlog.get_logger()


class Playbooks(Protocol):
    """Where playbooks are loaded from: `PlaybookStore`, `RowPlaybookStore`, or your own."""

    def load(self, dataset: str) -> Playbook: ...


class ReflectorAgent:
    """Looks at how an agent came to its answer: insights, and verdicts on the bullets it used.

    `llm_client` is an `LLMClient`, a bare model, or None: then rules reflect, and judge no bullets.
    """

    def __init__(
        self,
        llm_client: LLMClient | LLM | None,
        prompt_builder: ReflectorPromptBuilder,
        playbook_store: Playbooks,
    ) -> None:
        if llm_client is not None and not isinstance(llm_client, LLMClient):
            llm_client = LLMClient(llm_client, purpose="reflect")
        self.llm_client: LLMClient | None = llm_client
        self.prompt_builder = prompt_builder
        self.playbook_store = playbook_store

    def run(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        dataset: str,
        max_iterations: int = 1,
    ) -> ReflectionResult:
        """`arun` for synchronous code. Raises RuntimeError inside an event loop, where it would
        stand in the way; nothing else is ever raised.
        """
        asked = (trajectory, ground_truth, test_report, dataset, max_iterations)
        if self.llm_client is not None:
            return self.llm_client.run(self.arun, *asked)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.arun(*asked))
        raise RuntimeError("inside an event loop await `arun`")

    async def arun(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        dataset: str,
        max_iterations: int = 1,
    ) -> ReflectionResult:
        """The analysis; without a dataset there are no bullets. Whatever goes wrong is logged, and
        the result is empty with `iteration_count` 0; when a later round fails, what the rounds
        before found is given.
        """
        try:
            playbook = Playbook()
            if dataset:
                playbook = await asyncio.to_thread(self.playbook_store.load, dataset)
            case = Case(
                _without_secrets(trajectory),
                redact(ground_truth).text,
                redact(test_report).text,
                dataset,
                self._resolve_bullets(trajectory.used_bullet_ids, playbook),
            )
            analysis = await analyse(
                case, self.prompt_builder, self._mind(), max_iterations=max_iterations
            )
            return analysis.result
        except Exception as error:
            log.error("reflector_failed", dataset=dataset, error=str(error), exc_info=True)
            return ReflectionResult(
                insights=[],
                bullet_evaluations=[],
                trajectory_query=str(getattr(trajectory, "query", "")),
                trajectory_dataset=str(getattr(trajectory, "dataset", "") or dataset),
                iteration_count=0,
            )

    def _extract_insights(self, llm_response: str) -> list[Insight]:
        """The insights in a model's text; none when it cannot be read."""
        return read_insights(llm_response)

    async def _evaluate_bullets(
        self, trajectory: Trajectory, ground_truth: str, used_bullets: Sequence[Bullet]
    ) -> list[BulletEvaluation]:
        """A verdict on each bullet, asked about alone; without a model none."""
        mind = self._mind()
        if mind is None:
            return []
        case = Case(trajectory, ground_truth, bullets=used_bullets)
        return await judge_bullets(case, self.prompt_builder, mind)

    def _resolve_bullets(self, bullet_ids: Sequence[str], playbook: Playbook) -> list[Bullet]:
        """The bullets with these ids, each once, in the order named; unknown ids are skipped."""
        bullets = {bullet.id: bullet for bullet in playbook.bullets}
        meant = resolve(bullet_ids, bullets)
        if skipped := [name for name in bullet_ids if name not in meant]:
            log.warning("unknown_bullets_skipped", bullet_ids=skipped[:20])
        return [bullets[key] for key in dict.fromkeys(meant.values())]

    def _mind(self) -> Mind | None:
        return None if self.llm_client is None else Mind(self.llm_client.chat_model)


def _without_secrets(trajectory: Trajectory) -> Trajectory:
    texts: dict[str, Any] = trajectory.model_dump(
        include={"query", "generated_answer", "reasoning_steps", "error_message"}
    )
    return trajectory.model_copy(update=redact_value(texts)[0])
