"""The model port: one request, one reply, one HTTP call.

A provider does not retry and does not parse; wrappers do. `LLMReply.text` is the raw text. A
refusal or a truncated answer is a reply with that finish reason, so that its tokens are counted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable
from uuid import UUID

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "refusal", "tool", "other"]

DEFAULT_MAX_TOKENS = 2048
DEFAULT_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Providers with a separate system text (Anthropic) get all system messages
    joined.
    """

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The format of the answer. `schema` is a strict JSON schema
    (`structured_output.strict_schema`). `name` is 1 to 64 letters, digits, `_` or `-`.
    """

    name: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """A request to a model.

    `max_tokens` limits the answer. `temperature` None means the provider's default. `timeout` is in
    seconds and covers the whole call. `cache_prefix` is the number of leading messages that are the
    same in each call, for the provider's prompt cache. `purpose`, `prompt_hash`, `tenant_id`,
    `project_id` and `run_id` are for the ledger and the budget and are not sent.
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
    project_id: str | None = None
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts of the provider. `input_tokens` includes `cached_input_tokens` (read from the
    prompt cache) and `cache_write_tokens` (written to it).
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LLMReply:
    """A reply of a model. `text` is the raw text, or the text of a refusal. `model` is the name
    that the provider reported, which may be more specific than the requested one.
    """

    text: str
    model: str
    provider: str
    usage: TokenUsage = field(default_factory=TokenUsage)
    finish_reason: FinishReason = "stop"
    latency_ms: int = 0
    request_id: str | None = None


class LLM(Protocol):
    """A model, or a wrapper around one."""

    @property
    def provider(self) -> str:
        """openai, compatible, azure, anthropic or bedrock."""
        ...

    @property
    def model(self) -> str:
        """The configured model name."""
        ...

    @property
    def endpoint(self) -> str:
        """The base URL. The price depends on it, the provider and the model."""
        ...

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Call the model. Raises an `LLMError` if there is no reply."""
        ...

    async def aclose(self) -> None:
        """Close the connections. `complete` must not be called afterwards."""
        ...


@runtime_checkable
class ModelLister(Protocol):
    """A provider that can list its models, free of charge. This checks the connection and the
    key.
    """

    async def list_models(self, timeout: float) -> list[str]:  # noqa: ASYNC109 - passed to the SDK
        """The first page of model names. `timeout` is in seconds. Raises an `LLMError`."""
        ...


@runtime_checkable
class KeyedModel(Protocol):
    """A model that is called with an API key."""

    @property
    def key_fingerprint(self) -> str:
        """The first 16 hex digits of the key's SHA-256; "" without a key."""
        ...


def fingerprint_key(api_key: str | None) -> str:
    return hashlib.sha256(api_key.encode()).hexdigest()[:16] if api_key else ""


class LLMWrapper:
    """Base class of wrappers. Delegates to `inner` what a subclass does not override."""

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
