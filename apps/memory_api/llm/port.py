"""The model port: one request in, one reply out, one HTTP exchange per call. Wrappers add the rest.

A provider never retries, never parses and never hides what the model said: `LLMReply.text` is the
raw text, and a refusal or a cut answer is a reply with that finish reason, so that its tokens are
still counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable
from uuid import UUID

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "refusal", "tool", "other"]

DEFAULT_MAX_TOKENS = 2048
DEFAULT_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. Providers that keep system text apart (Anthropic) get all system messages
    joined."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """What the answer must look like. `schema` is a strict JSON schema (see
    `structured.strict_schema`); `name` is 1 to 64 letters, digits, `_` or `-`."""

    name: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """One question to a model.

    `max_tokens` bounds the answer; `temperature` None leaves the provider's default; `timeout` is
    in seconds and covers the whole exchange. `cache_prefix` is how many leading messages stay the
    same from call to call: providers mark or key them for prompt caching. `purpose`, `prompt_hash`,
    `tenant_id` and `run_id` are for the ledger and the budget only and are never sent.
    """

    messages: tuple[Message, ...]
    schema: JsonSchema | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float | None = None
    timeout: float = DEFAULT_TIMEOUT
    cache_prefix: int = 0
    purpose: str = "other"
    prompt_hash: str | None = None
    tenant_id: UUID | None = None
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them. `input_tokens` is everything that was read, cached or
    not; `cached_input_tokens` were read from its prompt cache and `cache_write_tokens` written to
    it, both being part of it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LLMReply:
    """What came back. `text` is the model's raw text (the refusal's text after a refusal); `model`
    is the name the provider reported, which may be more exact than the one asked for."""

    text: str
    model: str
    provider: str
    usage: Usage = field(default_factory=Usage)
    finish_reason: FinishReason = "stop"
    latency_ms: int = 0
    request_id: str | None = None


class LLM(Protocol):
    """A model, or a wrapper round one."""

    @property
    def provider(self) -> str:
        """openai, compatible, azure, anthropic or bedrock."""
        ...

    @property
    def model(self) -> str:
        """The model's name as configured."""
        ...

    @property
    def endpoint(self) -> str:
        """The base URL it talks to; with provider and model it decides the price."""
        ...

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Ask once. Raises an `LLMError` when there is no reply."""
        ...

    async def aclose(self) -> None:
        """Close its connections; nothing may be asked afterwards."""
        ...


@runtime_checkable
class Lists(Protocol):
    """A provider that can be asked, at no cost, what models it has: so one learns whether it is
    there and takes the key.
    """

    async def list_models(self, timeout: float) -> list[str]:  # noqa: ASYNC109 - the SDKs' own
        """Names of models, the first page of them. `timeout` in seconds. Raises an `LLMError`."""
        ...


class Wrapper:
    """A part that stands before another LLM and passes on what it does not change."""

    def __init__(self, inner: LLM) -> None:
        self.inner = inner

    @property
    def provider(self) -> str:
        return self.inner.provider

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def endpoint(self) -> str:
        return self.inner.endpoint

    async def complete(self, request: LLMRequest) -> LLMReply:
        return await self.inner.complete(request)

    async def aclose(self) -> None:
        await self.inner.aclose()
