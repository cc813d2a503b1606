"""`run_legacy_agent`: an older agent as one step (S3.23): a loop of observing and deciding, with
tool calls.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, Field, ValidationError

from memory_api.grace.context import format_conversation
from memory_api.grace.execution_plan import PlanStep
from memory_api.grace.tools.port import (
    Source,
    Tool,
    ToolContext,
    ToolFailed,
    ToolInput,
    ToolResult,
)
from memory_api.grace.tools.reasoning import (
    answer_factors,
    cite_sources,
    format_inputs,
    judge_answer,
)
from memory_api.llm.untrusted_text import fence_text, fit_text

OBSERVATION_TOKENS = 1_500
ANSWERED, UNANSWERED = 0.8, 0.3
"""The self-evaluation of an answer, and of a loop that found none."""


class LoopDecision(BaseModel):
    """What the loop does next: call a tool, or answer."""

    thought: str = Field(max_length=2_000)
    tool: str | None = Field(description="Name of a tool, or null to answer.")
    tool_query: str | None = Field(max_length=4_000, description="What the tool is asked.")
    answer: str | None = Field(max_length=20_000, description="The final answer, or null.")
    sufficient: bool = Field(
        default=True, description="Whether the observations answer the task; true for a tool call."
    )


class LegacyAgentTool(Tool):
    name = "run_legacy_agent"
    description = "Let an agent work on an open question in a loop with tool calls, as one step."
    needs_model = True

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        model = context.model
        if model is None:
            raise ToolFailed("`run_legacy_agent` needs a model.")
        tools = {n: t for n, t in context.tools.items() if n not in ("ask_user", self.name)}
        sources: list[Source] = list(context.sources)
        observations: list[str] = []
        for left in range(context.config.executor.react_max_iterations, 0, -1):
            values = {
                "tools": "\n".join(f"- {n}: {t.description}" for n, t in tools.items()),
                "query": fence_text(given.query, label="task"),
                "person": format_inputs(context),
                "conversation": format_conversation(context.conversation),
                "observations": "\n\n".join(observations) or "none",
                "iterations": str(left),
            }
            step = await model.ask(
                LoopDecision, "act", values, temperature=context.config.llm.temperature
            )
            if step.answer and not step.tool:
                return await self._finish(context, given, step, sources)
            observation = await self._call(context, tools, step, given, sources)
            observations.append(fence_text(observation, label="observation"))
        factors = replace(answer_factors(sources), llm_self_confidence=UNANSWERED)
        text = "The agent found no answer in its iterations."
        return ToolResult(text, "partial", sources, factors, found=False)

    async def _call(
        self,
        context: ToolContext,
        tools: dict[str, Tool],
        decision: LoopDecision,
        given: ToolInput,
        sources: list[Source],
    ) -> str:
        """Call a tool; adds its sources. Returns what the model is shown."""
        tool = tools.get(decision.tool or "")
        if tool is None:
            return f"There is no tool of this name. There are: {', '.join(sorted(tools))}."
        step = PlanStep(step_id=1, action=tool.name, description="-", query=decision.tool_query,
                        collection=given.collection)  # fmt: skip
        try:
            result = await tool.run(context, tool.parse_input(step, given.query))
        except (ToolFailed, ValidationError) as error:
            return f"The tool failed: {error}"
        lines: list[str] = []
        for source in result.sources:
            if source not in sources:
                sources.append(source)
            lines.append(f"[{sources.index(source) + 1}] {source.title}: {source.content}")
        return fit_text("\n".join(lines) or result.output or "No result.", OBSERVATION_TOKENS)

    async def _finish(
        self,
        context: ToolContext,
        given: ToolInput,
        decision: LoopDecision,
        sources: list[Source],
    ) -> ToolResult:
        answer, cited = cite_sources(decision.answer or "", sources)
        own = ANSWERED if decision.sufficient else UNANSWERED
        factors = replace(answer_factors(cited), llm_self_confidence=own)
        if not decision.sufficient or context.model is None:
            return ToolResult(answer, "partial", cited, factors, found=False)
        grounded = await judge_answer(context, context.model, given.query, answer, cited)
        return ToolResult(answer, sources=cited, factors=factors, grounded=grounded)
