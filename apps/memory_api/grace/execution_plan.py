"""Plans and results of GRACE (S3.54–S3.57), and the checks of a plan. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

StepState = Literal["pending", "running", "success", "partial", "failed", "skipped"]
FINISHED: frozenset[str] = frozenset({"success", "partial", "failed", "skipped"})
USABLE: frozenset[str] = frozenset({"success", "partial"})
"""States of a step whose output later steps may use."""
SEARCH_ACTIONS = frozenset({"rag_search", "web_search"})
FINDING_ACTIONS = SEARCH_ACTIONS | {"ask_user"}
"""Actions whose result is used by a later step."""
ANSWER_ACTIONS = frozenset({"reasoning", "run_legacy_agent"})
MAX_STEPS = 20
MAX_VARIABLE_LENGTH = 300
_VARIABLE = re.compile(r"\{(\d{1,3})\}")
"""`{2}` in the query of a step: the output of step 2."""
_CITATION = re.compile(r" ?\[\d{1,3}\]")


class PlanStep(BaseModel):
    """One step of a plan."""

    model_config = ConfigDict(extra="ignore")

    step_id: Annotated[int, Field(ge=1, le=1_000_000)]
    action: Annotated[str, Field(min_length=1, max_length=64)]
    description: Annotated[str, Field(min_length=1, max_length=2_000)]
    query: Annotated[str, Field(max_length=4_000)] | None = None
    collection: Annotated[str, Field(max_length=128)] | None = None
    depends_on: list[int] = Field(default_factory=list, max_length=MAX_STEPS)
    expected_output: Annotated[str, Field(max_length=2_000)] = ""
    fallback: Annotated[str, Field(max_length=64)] | None = None
    timeout_seconds: Annotated[float, Field(ge=1, le=300)] | None = None

    def without(self, step_id: int) -> PlanStep:
        """The step when another one is left out: without its output."""
        if not self.reads(step_id):
            return self
        query = self.query and " ".join(self.query.replace(f"{{{step_id}}}", " ").split())
        rest = [number for number in self.depends_on if number != step_id]
        return self.model_copy(update={"query": query or None, "depends_on": rest})

    def fill_query(self, results: Mapping[int, PlanStepResult]) -> PlanStep:
        """The step with the outputs of steps that it depends on in its query, without citations.
        Searches have no output of this kind. The reference to a step without an answer is removed,
        and in a search that to a person's words: they are sentences, and choose between passages
        (`rag_search`).
        """

        def output(found: re.Match[str]) -> str:
            result = results.get(int(found[1]))
            if result is None or result.action in SEARCH_ACTIONS:
                return found[0]
            if not self.reads(result.step_id):
                return found[0]
            if not result.found or (result.action == "ask_user" and self.action in SEARCH_ACTIONS):
                return ""
            return without_citations(" ".join(result.output.split()))[:MAX_VARIABLE_LENGTH]

        query = self.query and _VARIABLE.sub(output, self.query)
        if query and query != self.query:
            query = " ".join(query.split())[:4_000]
        return self.model_copy(update={"query": query})

    def reads(self, number: int) -> bool:
        """Whether this step uses the result of the step with this number: it is named, or this is
        an answer that names no step and uses all earlier ones.
        """
        if self.depends_on or self.action not in ANSWER_ACTIONS:
            return number in self.depends_on
        return number < self.step_id

    def renumber(self, numbers: Mapping[int, int]) -> PlanStep:
        """The step with other numbers of steps, also in its query."""
        query = self.query and _VARIABLE.sub(
            lambda found: f"{{{numbers.get(int(found[1]), int(found[1]))}}}", self.query
        )
        depends_on = [numbers.get(each, each) for each in self.depends_on]
        changed = {"step_id": numbers[self.step_id], "depends_on": depends_on, "query": query}
        return self.model_copy(update=changed)


def without_citations(text: str) -> str:
    """The text without numbers of sources, which are those of one prompt or result."""
    return _CITATION.sub("", text)


def new_plan_id() -> str:
    return uuid4().hex[:12]


class ExecutionPlan(BaseModel):
    """A plan. Its steps are in the order of their IDs, and depend on earlier steps only."""

    model_config = ConfigDict(extra="ignore")

    plan_id: str = Field(default_factory=new_plan_id)
    original_query: str
    complexity: Annotated[float, Field(ge=0, le=1)] = 0.5
    steps: list[PlanStep] = Field(min_length=1, max_length=MAX_STEPS)
    requires_confirmation: bool = False
    success_criteria: str = ""
    engine: Literal["template", "llm", "caller"] = "template"
    """What made the plan. `caller`: who started the run, instead of the planner."""
    cited_bullet_keys: list[str] = Field(default_factory=list)
    """Keys of the bullets of the playbook that the plan follows."""

    @property
    def estimated_steps(self) -> int:
        return len(self.steps)

    def end_with_answer(self) -> ExecutionPlan:
        """The plan, with a step that answers the question after a last step that finds something:
        without it, nothing would use what was found.
        """
        if self.steps[-1].action not in FINDING_ACTIONS or len(self.steps) >= MAX_STEPS:
            return self
        answer = PlanStep(
            step_id=self.steps[-1].step_id + 1,
            action="reasoning",
            description="Answer the question from the passages.",
            query=self.original_query[:4_000],
        )
        return self.model_copy(update={"steps": [*self.steps, answer]})

    def depend_on_variables(self) -> ExecutionPlan:
        """The plan in which a step depends on each step whose output its query has. An answer that
        names no step needs all earlier ones anyway.
        """
        answering = {each.step_id for each in self.steps if each.action not in SEARCH_ACTIONS}
        steps = list[PlanStep]()
        for step in self.steps:
            named = [int(number) for number in _VARIABLE.findall(step.query or "")]
            needed = [n for n in named if n in answering and n < step.step_id]
            reads_all = step.action in ANSWER_ACTIONS and not step.depends_on
            depends_on = [] if reads_all else list(dict.fromkeys([*step.depends_on, *needed]))
            steps.append(step.model_copy(update={"depends_on": depends_on}))
        return self.model_copy(update={"steps": steps})


class PlanStepResult(BaseModel):
    """What a step returned, and how sure it is."""

    step_id: int
    status: Literal["success", "partial", "failed", "skipped"]
    output: str = ""
    confidence: float = 0.0
    sources: list[dict[str, Any]] = Field(default_factory=list)
    error: str | None = None
    breakdown: dict[str, float] = Field(default_factory=dict)
    penalties: list[str] = Field(default_factory=list)
    level: str | None = None
    action: str = ""
    used_fallback: bool = False
    found: bool = True
    """False if the sources do not answer the question."""
    execution_time_ms: int = 0


class ExecutionResult(BaseModel):
    """The outcome of a run."""

    plan_id: str
    original_query: str
    final_answer: str | None
    step_results: list[PlanStepResult]
    overall_confidence: float
    calibrated_confidence: float
    overall_status: Literal["success", "partial", "failed", "cancelled"]
    found: bool = True
    sources: list[dict[str, Any]] = Field(default_factory=list)
    replan_count: int = 0
    total_execution_time_ms: int = 0
    total_token_usage: int = 0
    total_cost_usd: float | None = 0.0
    """None if the price of the model is unknown."""


@dataclass
class ExecutionState:
    """The state of a run between two steps. All steps start as pending."""

    plan: ExecutionPlan
    results: dict[int, PlanStepResult] = field(default_factory=dict[int, PlanStepResult])
    states: dict[int, StepState] = field(default_factory=dict[int, StepState])
    started: dict[int, int] = field(default_factory=dict[int, int])
    """How often each step was started."""

    def __post_init__(self) -> None:
        for step in self.plan.steps:
            self.states.setdefault(step.step_id, "pending")

    def step(self, step_id: int) -> PlanStep:
        return next(step for step in self.plan.steps if step.step_id == step_id)

    def unmet(self) -> list[PlanStep]:
        """Pending steps with a dependency that failed or was skipped."""
        return [
            step
            for step in self.plan.steps
            if self.states[step.step_id] == "pending"
            and any(self.states[each] in ("failed", "skipped") for each in step.depends_on)
        ]

    def ready(self) -> list[PlanStep]:
        """Pending steps whose dependencies all have an output, and steps that were cut off."""
        return [
            step
            for step in self.plan.steps
            if self.states[step.step_id] in ("pending", "running")
            and all(self.states[each] in USABLE for each in step.depends_on)
            and not self._waits_for_earlier(step)
        ]

    def _waits_for_earlier(self, step: PlanStep) -> bool:
        """An answer without dependencies waits for all earlier steps, and for a search that was
        added later and waits for nothing.
        """
        if step.depends_on or step.action not in ANSWER_ACTIONS:
            return False
        return any(
            self.states[each.step_id] not in FINISHED
            and (
                each.step_id < step.step_id
                or (each.action in SEARCH_ACTIONS and not each.depends_on)
            )
            for each in self.plan.steps
        )

    @property
    def is_finished(self) -> bool:
        return all(state in FINISHED for state in self.states.values())

    @property
    def finished_share(self) -> float:
        done = sum(state in USABLE for state in self.states.values())
        return done / len(self.states)


def find_plan_problems(
    plan: ExecutionPlan, actions: frozenset[str], max_steps: int, finished: Sequence[int] = ()
) -> list[str]:
    """Why a plan cannot be executed; empty if it can. A dependency must be one of the `finished`
    steps of the plan before, or exist and come earlier, so a valid plan has no cycle.
    """
    problems: list[str] = []
    if len(plan.steps) >= MAX_STEPS and plan.steps[-1].action in FINDING_ACTIONS:
        problems.append("The last step only finds something. No step answers the question.")
    if len(plan.steps) > max_steps:
        problems.append(f"The plan has {len(plan.steps)} steps. At most {max_steps} are allowed.")
    ids = [step.step_id for step in plan.steps]
    if len(set(ids)) < len(ids):
        problems.append("Two steps have the same step_id.")
    if ids != sorted(ids):
        problems.append("The steps are not in the order of their step_id.")
    earlier = set(finished)
    for step in plan.steps:
        problems += _find_step_problems(step, actions, earlier, ids)
        earlier.add(step.step_id)
    return problems


def _find_step_problems(
    step: PlanStep, actions: frozenset[str], earlier: set[int], ids: Sequence[int]
) -> list[str]:
    names, problems = ", ".join(sorted(actions)), list[str]()
    for what, name in (("action", step.action), ("fallback", step.fallback)):
        if name is not None and name not in actions:
            problems.append(f"Step {step.step_id}: unknown {what} '{name}'. There are: {names}.")
    for each in step.depends_on:
        if each not in earlier:
            why = "not earlier" if each in ids else "missing"
            problems.append(f"Step {step.step_id} depends on step {each}, which is {why}.")
    return problems
