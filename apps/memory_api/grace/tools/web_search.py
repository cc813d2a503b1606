"""`web_search`: asks a SearXNG-compatible address that the operator has set."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from memory_api.core.errors import HanseiError
from memory_api.core.json_input import parse_json
from memory_api.core.outgoing import AddressRefused, CallFailed, OutgoingCall, send_call
from memory_api.grace.config import GraceConfig
from memory_api.grace.tools.port import (
    Source,
    Tool,
    ToolContext,
    ToolFailed,
    ToolInput,
    ToolResult,
)
from memory_api.grace.tools.rag_search import search_factors

MAX_RESULT_LENGTH = 2_000
MAX_RESPONSE_BYTES = 2 * 1024 * 1024
TIMEOUT_SECONDS = 30.0
RANK_SCORES = (0.75, 0.7, 0.65, 0.6, 0.55)
"""Scores by rank, because the scores of search engines are not comparable."""


class WebSearchTool(Tool):
    name = "web_search"
    description = "Search the web. Use it if no collection covers the question."

    def is_available(self, config: GraceConfig) -> bool:
        return bool(config.web_search.url)

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        query = {"q": given.query, "format": "json"}
        call = OutgoingCall(
            "GET",
            f"{context.config.web_search.url.rstrip('/')}/search?{urlencode(query)}",
            allow_private=True,
            seconds=TIMEOUT_SECONDS,
            max_bytes=MAX_RESPONSE_BYTES,
        )
        try:
            answer = await send_call(call)
        except (CallFailed, AddressRefused) as error:
            raise ToolFailed(f"The web search failed: {error.detail}") from error
        if not answer.is_success:
            raise ToolFailed(f"The web search answered {answer.status}.")
        try:
            body: Any = parse_json(answer.body).value
            results: list[dict[str, Any]] = [dict(each) for each in body["results"]]
        except (HanseiError, ValueError, KeyError, TypeError) as error:
            raise ToolFailed("The web search answered without a list of results.") from error
        sources = [
            Source(
                source=str(each.get("url", ""))[:1_000],
                title=str(each.get("title", ""))[:200],
                content=str(each.get("content", ""))[:MAX_RESULT_LENGTH],
                score=score,
            )
            for each, score in zip(results, RANK_SCORES, strict=False)
        ]
        return ToolResult(
            "\n\n".join(f"{source.title}: {source.content}" for source in sources),
            sources=sources,
            factors=search_factors(sources),
            found=bool(sources),
        )
