"""`ReflectorAgent` (S1).

agent = ReflectorAgent(llm_client, ReflectorPromptBuilder(), PlaybookStore())
result = agent.run(trajectory, ground_truth, test_report, dataset)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol, cast

from memory_api.core.secret_redaction import redact, redact_value
from memory_api.core.telemetry import failure_fields, get_logger
from memory_api.library.llm_client import LLMClient, TemplateLLM
from memory_api.library.reflector_prompt import ReflectorPromptBuilder, parse_insights
from memory_api.library.reflector_rounds import (
    Evaluations,
    OwnParts,
    PromptSource,
    TrajectoryInput,
    analyze_trajectory,
    judge_bullets,
    trajectory_input,
)
from memory_api.llm.model_session import ModelSession
from memory_api.llm.port import LLM, Message
from memory_api.llm.prompts import PromptMessages
from memory_api.playbooks.citations import resolve_citations
from memory_api.playbooks.models import Bullet, Playbook
from memory_api.reflection.trajectories.schemas import (
    BulletEvaluation,
    Insight,
    Trajectory,
    TrajectoryResult,
)

log = get_logger(__name__)
ReflectionResult = TrajectoryResult
"""The name of S1. `memory_api.reflection.schemas.ReflectionResult` is the result of S5."""


_ANALYSIS_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("loop", default=None)
"""The event loop of the analysis, in the thread that calls an own `_evaluate_bullets`."""


class TemplateClient(Protocol):
    """`LLMClient` or your own class. If it has `ainvoke_with_template`, that one is awaited."""

    def invoke_with_template(self, template: str, variables: Any) -> str: ...


class PlaybookSource(Protocol):
    """Loads playbooks: `PlaybookStore`, `RowPlaybookStore` or your own class."""

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


_BUILDER_METHODS = ("build", "build_evaluation_prompt")
_TEMPLATE_METHODS = ("ainvoke_with_template", "invoke_with_template")


class _BuilderPrompts:
    """Asks with the texts of a builder that has its own `build` or `build_evaluation_prompt`."""

    def __init__(self, builder: PromptBuilder) -> None:
        self.builder = builder

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
    ) -> PromptMessages:
        text = self.builder.build(
            trajectory, ground_truth, test_report, used_bullets, dataset, previous_insights or None
        )
        return _to_messages(text, *(bullet.id for bullet in used_bullets))

    def evaluation_question(
        self, trajectory: Trajectory, ground_truth: str, bullet: Bullet, dataset: str = ""
    ) -> PromptMessages:
        text = self.builder.build_evaluation_prompt(trajectory, ground_truth, bullet)
        return _to_messages(text, bullet.id)


def _to_messages(text: str, *keys: str) -> PromptMessages:
    return PromptMessages((Message("user", text),), 0, text, keys)


class ReflectorAgent:
    """Derives insights and bullet verdicts from a trajectory.

    `llm_client` is an `LLMClient`, an object with its `invoke_with_template`, a model, or None.
    With None the rules engine reflects and gives no verdicts. Raises TypeError for an object that
    lacks a part. Several threads may call `run` of one agent at the same time.

    A subclass may override `_resolve_bullets`, `_extract_insights` and `_evaluate_bullets`; the
    last one may be a coroutine function, which awaits `_aevaluate_bullets` for the default. Without
    an override, one model call gives insights and verdicts, and the bullets that it leaves out get
    a call each.
    """

    def __init__(
        self,
        llm_client: TemplateClient | LLM | None,
        prompt_builder: PromptBuilder,
        playbook_store: PlaybookSource,
    ) -> None:
        self._model = None if llm_client is None else _to_model(llm_client)
        self._client = llm_client if isinstance(llm_client, LLMClient) else None
        if self._client is None and self._model is not None:
            self._client = LLMClient(self._model, purpose="reflect")
        _require_parts("prompt_builder", prompt_builder, *_BUILDER_METHODS)
        _require_parts("playbook_store", playbook_store, "load")
        is_client = hasattr(llm_client, "invoke_with_template")
        self.llm_client = cast("LLMClient | None", llm_client) if is_client else self._client
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
        """`arun` for synchronous code. Raises RuntimeError inside an event loop and
        nothing else.
        """
        arguments = (trajectory, ground_truth, test_report, dataset, max_iterations)
        if self._client is not None:
            return self._client.run(self.arun, *arguments)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.arun(*arguments))
        raise RuntimeError("Inside an event loop, await `arun`.")

    async def arun(
        self,
        trajectory: Trajectory,
        ground_truth: str,
        test_report: str,
        dataset: str,
        max_iterations: int = 1,
    ) -> TrajectoryResult:
        """The analysis of a trajectory. Without a dataset there are no bullets.

        Logs every error. The result is then empty with `iteration_count` 0, or that of the earlier
        rounds if a later round fails.
        """
        try:
            playbook = Playbook()
            if dataset:
                playbook = await asyncio.to_thread(self.playbook_store.load, dataset)
            input = await trajectory_input(
                _redact_trajectory(trajectory),
                redact(ground_truth).text,
                redact(test_report).text,
                dataset,
                self._resolve_bullets(trajectory.used_bullet_ids, playbook),
            )
            analysis = await analyze_trajectory(
                input,
                self._prompts(),
                self._model_session(),
                max_iterations=max_iterations,
                own=self._own_parts(input),
            )
            return analysis.result
        except Exception as error:
            log.warning("reflector_failed", dataset=dataset, **failure_fields(error))
            return TrajectoryResult(
                insights=[],
                bullet_evaluations=[],
                trajectory_query=str(getattr(trajectory, "query", "")),
                trajectory_dataset=str(getattr(trajectory, "dataset", "") or dataset),
                iteration_count=0,
            )

    def _extract_insights(self, llm_response: str) -> list[Insight]:
        """The insights in a model's reply; none if it cannot be parsed."""
        return parse_insights(llm_response)

    def _evaluate_bullets(
        self, trajectory: Trajectory, ground_truth: str, used_bullets: Sequence[Bullet]
    ) -> Evaluations | Awaitable[Evaluations]:
        """`_aevaluate_bullets` for synchronous code: a list. Raises RuntimeError inside an event
        loop.
        """
        if self._client is None:
            return []
        arguments = (trajectory, ground_truth, used_bullets)
        loop = _ANALYSIS_LOOP.get()
        if loop is None:
            return self._client.run(self._aevaluate_bullets, *arguments)
        evaluating = self._aevaluate_bullets(*arguments)
        return asyncio.run_coroutine_threadsafe(evaluating, loop).result()

    async def _aevaluate_bullets(
        self, trajectory: Trajectory, ground_truth: str, used_bullets: Sequence[Bullet]
    ) -> list[BulletEvaluation]:
        """One verdict per bullet, each from its own model call, in the order of the bullets; none
        without a model.
        """
        model_session = self._model_session()
        if model_session is None:
            return []
        input = await trajectory_input(trajectory, ground_truth, bullets=used_bullets)
        return await judge_bullets(input, self._prompts(), model_session)

    def _resolve_bullets(self, bullet_ids: Sequence[str], playbook: Playbook) -> list[Bullet]:
        """The bullets with these IDs, each once, in the order of the IDs. Unknown IDs are skipped
        and logged.
        """
        bullets = {bullet.id: bullet for bullet in playbook.bullets}
        key_by_citation = resolve_citations(bullet_ids, bullets)
        if unknown_ids := [name for name in bullet_ids if name not in key_by_citation]:
            log.warning("unknown_bullets_skipped", bullet_ids=unknown_ids[:20])
        return [bullets[key] for key in dict.fromkeys(key_by_citation.values())]

    def _prompts(self) -> PromptSource:
        builder = self.prompt_builder
        if isinstance(builder, ReflectorPromptBuilder) and not any(
            _is_replaced(builder, ReflectorPromptBuilder, name) for name in _BUILDER_METHODS
        ):
            return builder
        return _BuilderPrompts(builder)

    def _own_parts(self, input: TrajectoryInput) -> OwnParts:
        """The methods that a subclass overrides."""
        own = OwnParts()
        if _is_replaced(self, ReflectorAgent, "_extract_insights"):
            own = replace(own, extract_insights=self._extract_insights)
        if _is_replaced(self, ReflectorAgent, "_evaluate_bullets"):
            loop = asyncio.get_running_loop()

            def evaluate() -> Evaluations | Awaitable[Evaluations]:
                _ANALYSIS_LOOP.set(loop)  # in a thread, whose context is its own
                return self._evaluate_bullets(
                    input.trajectory, input.ground_truth, list(input.bullets)
                )

            own = replace(own, evaluate_bullets=evaluate)
        return own

    def _model_session(self) -> ModelSession | None:
        return None if self._model is None else ModelSession(self._model)


def _to_model(client: TemplateClient | LLM) -> LLM:
    """The model that the agent calls: that of an `LLMClient`, or the client itself if it has its
    own `invoke_with_template`. Raises TypeError for an object that is neither client nor model.
    """
    if method := _find_own_template_method(client):
        return TemplateLLM(method, type(client).__name__)
    model: Any = client.chat_model if isinstance(client, LLMClient) else client
    _require_parts("llm_client", model, "complete")
    _require_fields("llm_client", model, "provider", "model", "endpoint")
    return model


def _find_own_template_method(client: TemplateClient | LLM) -> Any:
    """None for a model, and for an `LLMClient` that overrides neither of the two methods."""
    if hasattr(client, "complete"):
        return None
    for name in _TEMPLATE_METHODS:
        is_inherited = isinstance(client, LLMClient) and not _is_replaced(client, LLMClient, name)
        method = getattr(client, name, None)
        if callable(method) and not is_inherited:
            return method
    return None


def _is_replaced(given: object, original: type, name: str) -> bool:
    """Whether a subclass, or the object itself, has its own method of this name."""
    return getattr(getattr(given, name), "__func__", None) is not getattr(original, name)


def _require_parts(name: str, given: object, *methods: str) -> None:
    """Raises TypeError if the object lacks one of the methods."""
    for method in methods:
        if not callable(getattr(given, method, None)):
            raise TypeError(f"`{name}` has no method `{method}`: {type(given).__name__}.")


def _require_fields(name: str, given: object, *fields: str) -> None:
    """Raises TypeError if the object lacks one of the fields."""
    for field in fields:
        if not hasattr(given, field):
            raise TypeError(f"`{name}` has no `{field}`: {type(given).__name__}.")


def _redact_trajectory(trajectory: Trajectory) -> Trajectory:
    texts: dict[str, Any] = trajectory.model_dump(
        include={"query", "generated_answer", "reasoning_steps", "error_message"}
    )
    return trajectory.model_copy(update=redact_value(texts)[0])
