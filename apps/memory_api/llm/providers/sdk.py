"""What the models of both SDKs share, because the same tool generates the SDKs."""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from memory_api.llm.error_mapping import SdkErrors, convert_sdk_errors
from memory_api.llm.port import LLMReply, LLMRequest, fingerprint_key


class SdkLLM(ABC):
    """A model that an SDK calls. A subclass says how a request and a reply look."""

    errors: ClassVar[SdkErrors]
    reply_name: ClassVar[str]
    """The expected response, for errors."""
    request_id_header: ClassVar[str]

    def __init__(self, client: Any, *, model: str, provider: str) -> None:
        self.client = client
        self._model = model
        self._provider = provider

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def model(self) -> str:
        return self._model

    @property
    def endpoint(self) -> str:
        return str(self.client.base_url)

    @property
    def key_fingerprint(self) -> str:
        """See `port.KeyedModel`."""
        return fingerprint_key(getattr(self.client, "api_key", None))

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Send one request. Raises an `LLMError` for a response of another kind."""
        started = time.perf_counter()
        with convert_sdk_errors(self.errors, request.timeout, self.reply_name):
            async with asyncio.timeout(request.timeout):
                create = self._create_method()
                raw: Any = await create(**self._body(request), timeout=request.timeout)
                parsed: Any = raw.parse()
                response: object = await parsed if inspect.isawaitable(parsed) else parsed
        latency = round((time.perf_counter() - started) * 1000)
        return self._reply(response, latency, raw.headers.get(self.request_id_header))

    async def list_models(self, timeout: float) -> list[str]:  # noqa: ASYNC109 - passed to the SDK
        """See `port.ModelLister`."""
        with convert_sdk_errors(self.errors, timeout, "a list of models"):
            async with asyncio.timeout(timeout):
                page: Any = await self.client.models.list(timeout=timeout)
        models: list[Any] = getattr(page, "data", None) or []
        return [str(getattr(model, "id", "")) for model in models]

    async def aclose(self) -> None:
        await self.client.close()

    @abstractmethod
    def _create_method(self) -> Any:
        """The method of the client, with the raw response."""

    @abstractmethod
    def _body(self, request: LLMRequest) -> dict[str, Any]: ...

    @abstractmethod
    def _reply(self, response: object, latency_ms: int, request_id: str | None) -> LLMReply: ...
