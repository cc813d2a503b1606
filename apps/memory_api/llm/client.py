"""`LLMClient` and `create_chat_model`: the names of the documents (spec 2) over the port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Self, TypeVar

import structlog

from apps.memory_api.core.prompts import content_hash, render
from apps.memory_api.llm.port import LLM, LLMRequest, Message
from apps.memory_api.llm.registry import open_llm

T = TypeVar("T")
log = structlog.get_logger(__name__)


def create_chat_model(
    provider: str,
    model: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    **options: str,
) -> LLM:
    """A model by its provider's name: openai, azure, anthropic or bedrock. Raises ValueError for
    any other."""
    llm = open_llm(provider, model=model, api_key=api_key, base_url=base_url, **options)
    if llm is None:
        raise ValueError(f"provider {provider!r} has no chat model")
    return llm


class LLMClient:
    """Plain calls to a model: messages in, message out; or a template and its variables in, text
    out.

    `invoke` and `invoke_with_template` are for synchronous code and refuse to run inside an event
    loop; use `ainvoke` and `ainvoke_with_template` there. One client serves one of the two worlds,
    because connections belong to a loop. A failure is logged and raised again.
    """

    def __init__(self, chat_model: LLM, *, purpose: str = "invoke", max_tokens: int = 2048) -> None:
        self.chat_model = chat_model
        self._purpose = purpose
        self._max_tokens = max_tokens
        self._runner: asyncio.Runner | None = None

    async def ainvoke(self, messages: Sequence[Message]) -> Message:
        """The model's answer as an assistant message."""
        return Message("assistant", await self._ask(tuple(messages), None))

    async def ainvoke_with_template(self, template: str, variables: Mapping[str, str]) -> str:
        """Fill `{name}` placeholders (see `core.prompts.render`: values are never read as
        templates) and ask."""
        try:
            prompt = render(template, variables)
        except ValueError as error:
            log.error("llm_template_failed", purpose=self._purpose, error=str(error))
            raise
        return await self._ask((Message("user", prompt),), content_hash(template))

    def invoke(self, messages: Sequence[Message]) -> Message:
        """`ainvoke` for synchronous code. Raises RuntimeError inside an event loop."""
        return self.run(self.ainvoke, messages)

    def invoke_with_template(self, template: str, variables: Mapping[str, str]) -> str:
        """`ainvoke_with_template` for synchronous code. Raises RuntimeError inside an event
        loop."""
        return self.run(self.ainvoke_with_template, template, variables)

    def close(self) -> None:
        """Close the model's connections and the loop of the synchronous calls."""
        self.run(self.chat_model.aclose)
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _ask(self, messages: tuple[Message, ...], prompt_hash: str | None) -> str:
        request = LLMRequest(
            messages,
            purpose=self._purpose,
            prompt_hash=prompt_hash,
            max_tokens=self._max_tokens,
        )
        try:
            reply = await self.chat_model.complete(request)
        except Exception as error:
            log.error(
                "llm_failed",
                purpose=self._purpose,
                model=self.chat_model.model,
                error_type=type(error).__name__,
                error=str(error),
            )
            raise
        return reply.text

    def run(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Await something on the loop of the synchronous calls. Raises RuntimeError inside an event
        loop.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("inside an event loop use the a… form of this method")
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(function(*args))
