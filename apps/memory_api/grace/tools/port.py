"""The protocol of a tool: typed input, text output, sources and factors of confidence (S3.33).

A tool of your own is a subclass of `Tool` in the entry point group `hansei.grace_tools`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from memory_api.grace.agent_model import AgentModel
from memory_api.grace.confidence import ConfidenceFactors, Groundedness
from memory_api.grace.config import GraceConfig
from memory_api.grace.context import EarlierAnswer
from memory_api.grace.corrections import Correction
from memory_api.grace.execution_plan import PlanStep, PlanStepResult
from memory_api.llm.untrusted_text import fence_text
from memory_api.runtime import Runtime


class ToolFailed(Exception):
    """The tool cannot do its work. The message goes to the step's `error`."""


@dataclass(frozen=True)
class Source:
    """A passage that a tool found. `score` is 0 to 1 and comparable between searches."""

    source: str
    content: str
    score: float
    title: str | None = None
    collection: str | None = None
    document_id: str | None = None
    memory_id: str | None = None
    page: int | None = None
    start: int | None = None
    end: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class ToolResult:
    """What a tool returns. `grounded` is set if the claims of its answer were compared with the
    sources. `found` is false if the sources do not answer the question.
    """

    output: str
    status: Literal["success", "partial", "failed"] = "success"
    sources: Sequence[Source] = ()
    factors: ConfidenceFactors = field(default_factory=ConfidenceFactors)
    grounded: Groundedness | None = None
    found: bool = True
    error: str | None = None
    is_checked: bool = True
    """False if nobody has compared the output with the question: its level is `notify` at most."""
    next_search: str = ""
    """Words of another search that may find what the sources do not say."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool may use. `outputs` are the results of all finished steps, those first that this
    one depends on.
    """

    runtime: Runtime
    config: GraceConfig
    tenant_id: UUID
    project_id: str
    query: str
    """The question of the run."""
    collections: Sequence[str]
    """Collections of the run; empty: all of the project."""
    outputs: Mapping[int, PlanStepResult]
    model: AgentModel | None = None
    bullets: str = ""
    """The bullets of the playbook that fit the question, as a fenced block."""
    tools: Mapping[str, Tool] = field(default_factory=dict[str, "Tool"])
    corrections: Sequence[Correction] = ()
    """Those of the bullets that correct a question."""
    conversation: Sequence[EarlierAnswer] = ()
    """Earlier questions and answers that the question follows up on, oldest first."""
    person_inputs: Sequence[str] = ()
    """What a person has added to the question, oldest first."""
    queries: Mapping[int, str] = field(default_factory=dict[int, str])
    """What each step of the plan searches for, asks or answers."""
    is_intermediate: bool = False
    """Whether other steps use the result of this one."""

    @property
    def sources(self) -> list[Source]:
        """The sources of earlier steps, each passage once, in the order of the steps."""
        found: dict[tuple[str, int | None, int | None, str], Source] = {}
        for result in self.outputs.values():
            for each in result.sources:
                source = Source(**each)
                key = (source.source, source.page, source.start, source.content)
                found.setdefault(key, source)
        return list(found.values())


class ToolInput(BaseModel):
    """The input of every tool, made from the plan step. A tool may have a stricter class."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=10_000)
    collection: str | None = None


class Tool(ABC):
    """One action of a plan."""

    name: ClassVar[str]
    description: ClassVar[str]
    """For the planner."""
    Input: ClassVar[type[ToolInput]] = ToolInput
    idempotent: ClassVar[bool] = True
    """Whether a call that was cut off may be repeated. If not, a person is asked."""
    needs_model: ClassVar[bool] = False

    def is_available(self, config: GraceConfig) -> bool:
        """Whether the operator has set what the tool needs."""
        return True

    def parse_input(self, step: PlanStep, query: str) -> ToolInput:
        """The input from a plan step. Raises pydantic's `ValidationError`."""
        return self.Input.model_validate(
            {"query": (step.query or "").strip() or query, "collection": step.collection}
        )

    @abstractmethod
    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        """Do the work. Raises `ToolFailed` and errors of the model; returns within the timeout of
        the step or is cancelled. No transaction is open.
        """


def fence_sources(sources: Sequence[Source]) -> str:
    """The sources with their numbers, fenced with their titles: data, never instructions."""
    if not sources:
        return "none"
    return "\n\n".join(
        f"[{number}]\n{fence_text(show_source(source), label='source')}"
        for number, source in enumerate(sources, start=1)
    )


def show_source(source: Source) -> str:
    """Its title and its text."""
    return f"{' '.join((source.title or source.source).split())}\n{source.content}"
