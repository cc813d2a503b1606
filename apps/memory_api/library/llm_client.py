"""`LLMClient` and `create_chat_model` (S2), on top of the model port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, cast

from memory_api.core.settings import Settings
from memory_api.core.telemetry import failure_fields, get_logger
from memory_api.library.blocking import LoopThread, require_no_event_loop
from memory_api.llm.port import LLM, LLMRequest, Message, Role
from memory_api.llm.prompts import content_hash, render_template
from memory_api.llm.registry import open_configured_models, open_llm

log = get_logger(__name__)
MessageLike = Any
"""What `LLMClient.invoke` accepts as a message."""
_ROLES: Mapping[object, Role] = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
}


def _to_message(value: MessageLike) -> Message:
    """Raises TypeError for anything else."""
    if isinstance(value, Message):
        return value
    if isinstance(value, str):
        return Message("user", value)
    given: Any = value
    role: Any = None
    content: Any = None
    if isinstance(value, Mapping):
        role, content = given.get("role"), given.get("content")
    elif isinstance(value, Sequence):
        role, content = given if len(given) == 2 else (None, None)
    else:
        role, content = getattr(given, "type", None), getattr(given, "content", None)
    if isinstance(role, str) and role in _ROLES and isinstance(content, str):
        return Message(_ROLES[role], content)
    raise TypeError(
        "A message is a text, (role, text) or {'role': …, 'content': …} with the role system, "
        f"user or assistant, not {type(given).__name__} {given!r:.100}."
    )


def _to_messages(given: Any) -> tuple[Message, ...]:
    """Raises TypeError for anything else, also for a mapping: its items are no messages."""
    if isinstance(given, str):
        return (_to_message(given),)
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"Pass a text or a list of messages, not {cast('Any', given)!r:.100}.")
    return tuple(map(_to_message, cast("Iterable[Any]", given)))


def create_chat_model(
    provider: str,
    model: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    **options: str,
) -> LLM:
    """Opens a model of a provider: openai, azure, anthropic or bedrock. Raises ValueError for any
    other.
    """
    llm = open_llm(provider, model=model, api_key=api_key, base_url=base_url, **options)
    if llm is None:
        raise ValueError(
            f"Provider {provider!r} has no chat model. Use openai, azure, anthropic or bedrock."
        )
    return llm


@asynccontextmanager
async def configured_model(llm: LLM | None = None) -> AsyncGenerator[LLM | None]:
    """The given model, else the first configured one, which is closed at the end; None if no
    provider is configured.
    """
    opened = open_configured_models(Settings.load())[:1] if llm is None else []
    try:
        yield opened[0] if opened else llm
    finally:
        for model in opened:
            await model.aclose()


class LLMClient:
    """Calls a model with messages, or with a template and its variables.

    `invoke` and `invoke_with_template` are for synchronous code and raise RuntimeError inside an
    event loop; use `ainvoke` and `ainvoke_with_template` there. Several threads and event loops may
    use a client at the same time: its calls run on an event loop of its own, and `close` closes the
    model there. Errors are logged with their stack and raised.

    A message is a `Message`, a text of the user, a pair (role, text), a mapping with `role` and
    `content`, or an object with `type` and `content`, such as a message of LangChain. One text
    stands for one message.
    """

    def __init__(self, chat_model: LLM, *, purpose: str = "invoke", max_tokens: int = 2048) -> None:
        self.chat_model = chat_model
        self._purpose = purpose
        self._max_tokens = max_tokens
        self._loop = LoopThread()

    def invoke(self, messages: str | Iterable[MessageLike]) -> Message:
        """The model's reply as an assistant message. Raises TypeError for what is no message."""
        require_no_event_loop("`ainvoke`")
        return self._loop.run(self._invoke(messages))

    async def ainvoke(self, messages: str | Iterable[MessageLike]) -> Message:
        """`invoke` for asynchronous code."""
        return await asyncio.wrap_future(self._loop.start(self._invoke(messages)))

    def invoke_with_template(self, template: str, variables: Mapping[str, object]) -> str:
        """Fills `{name}` placeholders with the values as text, none of which is read as a template,
        and calls the model.
        """
        require_no_event_loop("`ainvoke_with_template`")
        return self._loop.run(self._invoke_with_template(template, variables))

    async def ainvoke_with_template(self, template: str, variables: Mapping[str, object]) -> str:
        """`invoke_with_template` for asynchronous code."""
        call = self._invoke_with_template(template, variables)
        return await asyncio.wrap_future(self._loop.start(call))

    def close(self) -> None:
        """Closes the model's connections. Call it after the last call has returned; inside an event
        loop, in a thread.
        """
        require_no_event_loop("`asyncio.to_thread(client.close)`")
        self._loop.run(self._close_model())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _invoke(self, messages: str | Iterable[MessageLike]) -> Message:
        try:
            converted = _to_messages(messages)
        except TypeError as error:
            log.error("llm_messages_invalid", purpose=self._purpose, error=error, exc_info=error)
            raise
        return Message("assistant", await self._complete(converted, None))

    async def _invoke_with_template(self, template: str, variables: Mapping[str, object]) -> str:
        try:
            values = {name: str(value) for name, value in variables.items()}
            prompt = render_template(template, values)
        except ValueError as error:
            log.error("llm_template_failed", purpose=self._purpose, error=error, exc_info=error)
            raise
        return await self._complete((Message("user", prompt),), content_hash(template))

    async def _complete(self, messages: tuple[Message, ...], prompt_hash: str | None) -> str:
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
                **failure_fields(error),
                error=str(error),
                exc_info=error,
            )
            raise
        return reply.text

    async def _close_model(self) -> None:
        await self.chat_model.aclose()
