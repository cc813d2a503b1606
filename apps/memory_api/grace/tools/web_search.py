"""`web_search`: asks a SearXNG-compatible address that the operator has set."""

from __future__ import annotations

from typing import Any

import httpx2

from memory_api.grace.confidence import ConfidenceFactors
from memory_api.grace.config import GraceConfig
from memory_api.grace.tools.port import (
    Source,
    Tool,
    ToolContext,
    ToolFailed,
    ToolInput,
    ToolResult,
)

MAX_RESULT_LENGTH = 2_000
MAX_RESPONSE_BYTES = 2 * 1024 * 1024
RANK_SCORES = (0.75, 0.7, 0.65, 0.6, 0.55)
"""Scores by rank, because the scores of search engines are not comparable."""


class WebSearchTool(Tool):
    name = "web_search"
    description = "Search the web. Use it if no collection covers the question."

    def is_available(self, config: GraceConfig) -> bool:
        return bool(config.web_search.url)

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        url = context.config.web_search.url.rstrip("/") + "/search"
        try:
            async with httpx2.AsyncClient(timeout=None, trust_env=False) as client:
                answer = await client.get(url, params={"q": given.query, "format": "json"})
                answer.raise_for_status()
                if len(answer.content) > MAX_RESPONSE_BYTES:
                    raise ToolFailed("The web search answered with more than 2 MB.")
                body: Any = answer.json()
            results: list[dict[str, Any]] = [dict(each) for each in body["results"]]
        except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ToolFailed(f"The web search failed: {type(error).__name__}.") from error
        sources = [
            Source(
                source=str(each.get("url", ""))[:1_000],
                title=str(each.get("title", ""))[:200],
                content=str(each.get("content", ""))[:MAX_RESULT_LENGTH],
                score=score,
            )
            for each, score in zip(results, RANK_SCORES, strict=False)
        ]
        scores = [source.score for source in sources]
        return ToolResult(
            "\n\n".join(f"{source.title}: {source.content}" for source in sources),
            sources=sources,
            factors=ConfidenceFactors(
                search_result_count=len(sources),
                search_avg_score=sum(scores) / len(scores) if scores else 0.0,
                search_max_score=max(scores, default=0.0),
                search_score_variance=0.0,
                source_count=len(sources),
                is_search_step=True,
            ),
            found=bool(sources),
        )
