"""Hansei as a system of Continual Learning Bench.

Copy this folder to `src/systems/hansei` of a checkout of the benchmark. The README has the steps.
`src` is the package of the benchmark.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from src.interface import (
    ContinualLearningSystem,
    Observation,
    Query,
    Response,
    observation_marks_instance_complete,
)
from src.registry import register_system
from src.systems.utils import completion_with_structured_output

from hansei import Hansei

PLAYBOOK = "continual-learning-bench"
MAX_QUERY_CHARACTERS = 10_000


@register_system("hansei")
class HanseiSystem(ContinualLearningSystem):
    """Reads advice from a playbook before each instance, and learns from each instance.

    A reset starts with an empty playbook in a project of its own, so the baseline without memory
    has no advice.
    """

    def __init__(
        self,
        model: str = "openai/gpt-5",
        focus: str = "",
        token_budget: int = 2000,
        learn_every: int = 1,
        learn_timeout: float = 600.0,
    ) -> None:
        """`focus`: what the playbook is to collect, in one sentence, such as "the objects of this
        environment and their limits". `learn_every`: instances that Hansei learns from together.
        `learn_timeout`: seconds for their lessons.
        """
        self.model = model
        self.focus = focus
        self.token_budget = token_budget
        self.learn_every = learn_every
        self.learn_timeout = learn_timeout
        self._client = Hansei()
        self._messages: list[dict[str, str]] = []
        self._retrieval_id: str | None = None
        self._traces: list[dict[str, Any]] = []
        self.reset()

    @property
    def name(self) -> str:
        return "hansei"

    def reset(self) -> None:
        self._project = f"clb-{uuid4().hex[:12]}"
        self._traces = []
        self._start_instance()
        self._client.playbooks.replace(PLAYBOOK, {"bullets": []}, project_id=self._project)
        if self.focus:
            self._client.playbooks.update(PLAYBOOK, focus=self.focus, project_id=self._project)

    def _start_instance(self) -> None:
        self._messages = []
        self._retrieval_id = None

    def respond(self, query: Query) -> Response:
        if not self._messages:
            block = self._client.playbooks.render(
                PLAYBOOK,
                query.prompt[:MAX_QUERY_CHARACTERS],
                project_id=self._project,
                token_budget=self.token_budget,
            )
            self._retrieval_id = block.retrieval_id
            if block.text:
                self._messages.append({"role": "system", "content": block.text})
        self._messages.append({"role": "user", "content": query.prompt})
        action, usage = completion_with_structured_output(
            model=self.model, messages=self._messages, response_schema=query.response_schema
        )
        if usage is not None:
            self.record_usage_event(usage)
        self._messages.append({"role": "assistant", "content": action.model_dump_json()})
        return Response(action=action, metadata={"retrieval_id": self._retrieval_id})

    def observe(self, observation: Observation, next_query: Query | None = None) -> None:
        if observation.content.strip():
            self._messages.append({"role": "user", "content": f"FEEDBACK: {observation.content}"})
        if observation_marks_instance_complete(observation):
            self._end_instance()
            self._start_instance()

    def _end_instance(self) -> None:
        """Record the instance. The benchmark shows the reward to no system, so the trace has no
        outcome: the feedback says what happened.
        """
        kinds = {"user": "user_message", "assistant": "llm_response"}
        events = [
            {"event_type": kinds[message["role"]], "content": message["content"]}
            for message in self._messages
            if message["role"] in kinds
        ]
        if events:
            self._traces.append(
                {
                    "playbook": PLAYBOOK,
                    "task_description": events[0]["content"],
                    "retrieval_id": self._retrieval_id,
                    "events": events,
                }
            )
        if len(self._traces) >= self.learn_every:
            self._learn()

    def _learn(self) -> None:
        """Send the instances and wait until their lessons are in the playbook."""
        receipts = self._client.traces.create_many(
            self._traces, reflect="always", project_id=self._project
        )
        self._traces = []
        runs = {run_id for receipt in receipts if (run_id := receipt.run_id)}
        ends = time.monotonic() + self.learn_timeout
        for unfinished in self._client.runs.poll_unfinished(runs, project_id=self._project):
            if unfinished and time.monotonic() > ends:
                raise TimeoutError(f"Hansei has not learned within {self.learn_timeout:g} s.")

    def get_run_artifacts(self) -> dict[str, Any]:
        bullets = self._client.playbooks.bullets.list(PLAYBOOK, project_id=self._project)
        return {
            "artifact_type": "hansei",
            "project_id": self._project,
            "bullets": [bullet.content for bullet in bullets],
        }
