"""A list of models: the next one is asked when the one before it cannot answer."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from apps.memory_api.llm.errors import LLMBadRequest, LLMError
from apps.memory_api.llm.port import LLM, LLMReply, LLMRequest

log = structlog.get_logger(__name__)


class Fallback:
    """Goes on when the fault is the provider's or the request does not suit that model; a refusal
    is final. When all fail, the last one's error is raised; those before are logged."""

    def __init__(self, llms: Sequence[LLM]) -> None:
        if not llms:
            raise ValueError("a fallback needs at least one model")
        self._llms = tuple(llms)

    @property
    def provider(self) -> str:
        return self._llms[0].provider

    @property
    def model(self) -> str:
        return self._llms[0].model

    @property
    def endpoint(self) -> str:
        return self._llms[0].endpoint

    async def complete(self, request: LLMRequest) -> LLMReply:
        *first, last = self._llms
        for llm in first:
            try:
                return await llm.complete(request)
            except LLMError as error:
                if not (error.provider_fault or isinstance(error, LLMBadRequest)):
                    raise
                log.warning("llm_fallback", code=error.code, provider=llm.provider, model=llm.model)
        return await last.complete(request)

    async def aclose(self) -> None:
        for llm in self._llms:
            await llm.aclose()
