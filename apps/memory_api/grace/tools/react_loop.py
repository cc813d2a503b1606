"""`run_legacy_agent`: an older agent as one step (S3.23): a loop of observing and deciding, with
tool calls.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, Field, ValidationError

from memory_api.grace.confidence import ConfidenceFactors
from memory_api.grace.conversation import format_conversation
from memory_api.grace.execution_plan import PlanStep
from memory_api.grace.tools.port import (
    Source,
    Tool,
    ToolContext,
    ToolFailed,
    ToolInput,
    ToolResult,
)
from memory_api.grace.tools.reasoning import cite_sources, format_inputs, judge_answer
from memory_api.llm.untrusted_text import fence_text, fit_text

OBSERVATION_TOKENS = 1_500
APOLOGY = re.compile(
    r"\b(?:sorry|apologi[sz]e|cannot answer|unable to|could not find|no information)\b"
    r"|申し訳|すみません|わかりません|分かりません|見つかりません|お答えできません",
    re.IGNORECASE,
)
CONFIDENT, APOLOGETIC = 0.8, 0.3
"""The self-evaluation of an answer, and of one that contains an apology."""


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
        return ToolResult(
            "The agent found no answer in its iterations.",
            "partial",
            sources,
            ConfidenceFactors(llm_self_confidence=APOLOGETIC, source_count=len(sources)),
            found=False,
        )

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
        apologizes = bool(APOLOGY.search(answer))
        own = APOLOGETIC if apologizes else CONFIDENT
        scores = [source.score for source in cited]
        factors = ConfidenceFactors(
            search_result_count=len(cited),
            search_avg_score=sum(scores) / len(scores) if scores else 0.0,
            search_max_score=max(scores, default=0.0),
            source_count=len(cited),
            llm_self_confidence=own,
        )
        if apologizes or not decision.sufficient or context.model is None:
            return ToolResult(answer, "partial", cited, factors, found=False)
        grounded = await judge_answer(context, context.model, given.query, answer, cited)
        return ToolResult(answer, sources=cited, factors=factors, grounded=grounded)
