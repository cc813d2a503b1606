"""OpenAI chat completions over OpenAI's own SDK: OpenAI itself, Azure, and every server that speaks
its protocol."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion

from apps.memory_api.llm.errors import LLMConnection, LLMError, LLMServerError, LLMTimeout
from apps.memory_api.llm.faults import from_status
from apps.memory_api.llm.port import FinishReason, LLMReply, LLMRequest, Usage

OFFICIAL = "https://api.openai.com/v1"
Dialect = Literal["openai", "compatible", "azure"]

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "content_filter": "refusal",
    "tool_calls": "tool",
    "function_call": "tool",
}


class OpenAILLM:
    """One model behind `/chat/completions`.

    The dialect `compatible` uses the older name of the token limit and sends no cache key, because
    other servers reject or ignore what OpenAI added later.
    """

    def __init__(self, client: openai.AsyncOpenAI, *, model: str, dialect: Dialect) -> None:
        self._client = client
        self._dialect: Dialect = dialect
        self._model = model

    @property
    def provider(self) -> str:
        return self._dialect

    @property
    def model(self) -> str:
        return self._model

    @property
    def endpoint(self) -> str:
        return str(self._client.base_url)

    @property
    def client(self) -> openai.AsyncOpenAI:
        return self._client

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    async def complete(self, request: LLMRequest) -> LLMReply:
        """One POST. Raises an `LLMError` for everything that is not a completion."""
        started = time.perf_counter()
        with _llm_errors(request.timeout, "a completion"):
            async with asyncio.timeout(request.timeout):
                create = self._create()
                raw: Any = await create(**self._body(request), timeout=request.timeout)
                completion: object = raw.parse()
        latency = round((time.perf_counter() - started) * 1000)
        return self._reply(completion, latency, raw.headers.get("x-request-id"))

    async def list_models(self, timeout: float) -> list[str]:  # noqa: ASYNC109 - the SDK's own
        """See `port.Lists`."""
        with _llm_errors(timeout, "a list of models"):
            page: Any = await self._client.models.list(timeout=timeout)
        listed: list[Any] = getattr(page, "data", None) or []
        return [str(getattr(model, "id", "")) for model in listed]

    async def aclose(self) -> None:
        await self._client.close()

    def _create(self) -> Any:
        return self._client.chat.completions.with_raw_response.create

    def _body(self, request: LLMRequest) -> dict[str, Any]:
        limit = "max_tokens" if self._dialect == "compatible" else "max_completion_tokens"
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": m.role, "content": m.content} for m in request.messages],
            limit: request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": request.schema.name,
                    "schema": request.schema.schema,
                    "strict": True,
                },
            }
        if self._dialect == "openai" and request.cache_prefix and request.prompt_hash:
            # Caching is automatic; the key sends equal prefixes to the same machine.
            body["prompt_cache_key"] = request.prompt_hash[:64]
        return body

    def _reply(self, completion: object, latency_ms: int, request_id: str | None) -> LLMReply:
        # The SDK does not validate: a page of HTML arrives as a str, an error with status 200
        # without choices.
        choices: list[Any] | None = getattr(completion, "choices", None)
        if not isinstance(completion, ChatCompletion) or not choices:
            raise LLMServerError(f"not a completion: {completion!s}"[:1000], request_id=request_id)
        message = getattr(choices[0], "message", None)
        refusal: str | None = getattr(message, "refusal", None)
        finish = _FINISH.get(str(getattr(choices[0], "finish_reason", None)), "other")
        return LLMReply(
            text=refusal or getattr(message, "content", None) or "",
            model=getattr(completion, "model", None) or self._model,
            provider=self.provider,
            usage=_usage(getattr(completion, "usage", None)),
            finish_reason="refusal" if refusal else finish,
            latency_ms=latency_ms,
            request_id=request_id,
        )


def _usage(usage: CompletionUsage | None) -> Usage:
    """Servers leave out what they do not count; that is 0."""
    details: Any = getattr(usage, "prompt_tokens_details", None)
    return Usage(
        input_tokens=getattr(usage, "prompt_tokens", None) or 0,
        output_tokens=getattr(usage, "completion_tokens", None) or 0,
        cached_input_tokens=getattr(details, "cached_tokens", None) or 0,
        cache_write_tokens=getattr(details, "cache_write_tokens", None) or 0,
    )


@contextmanager
def _llm_errors(timeout: float, what: str) -> Generator[None]:
    """The SDK's exceptions as our own; `what` was asked for."""
    try:
        yield
    except (TimeoutError, openai.APITimeoutError) as error:
        raise LLMTimeout(f"no answer within {timeout:g} s") from error
    except openai.APIStatusError as error:
        raise _status_error(error) from error
    except openai.APIConnectionError as error:
        raise LLMConnection(f"{error} {error.__cause__ or ''}".strip()) from error
    except (openai.APIError, json.JSONDecodeError) as error:
        raise LLMServerError(f"not {what}: {error}"[:1000]) from error


def _status_error(error: openai.APIStatusError) -> LLMError:
    kinds = frozenset(kind for kind in (error.code, error.type) if kind)
    headers: Mapping[str, str] = error.response.headers
    return from_status(
        error.status_code,
        message=error.message,
        kinds=kinds,
        headers=headers,
        request_id=error.request_id,
    )


def open_openai(*, model: str, api_key: str | None, base_url: str | None) -> OpenAILLM:
    """OpenAI, or the compatible server at `base_url` (with its `/v1`), which may need no key."""
    official = base_url is None or base_url.startswith(OFFICIAL)
    if official and not api_key:
        raise ValueError("openai needs an api_key")
    client = openai.AsyncOpenAI(
        api_key=api_key or "none", base_url=base_url or OFFICIAL, max_retries=0
    )
    return OpenAILLM(client, model=model, dialect="openai" if official else "compatible")


def open_azure(
    *, model: str, api_key: str | None, base_url: str | None, api_version: str = "2024-10-21"
) -> OpenAILLM:
    """An Azure OpenAI deployment: `model` is the deployment's name, `base_url` the resource's
    endpoint."""
    if not base_url or not api_key:
        raise ValueError("azure needs an api_key and the base_url of the resource")
    client = openai.AsyncAzureOpenAI(
        api_key=api_key, azure_endpoint=base_url, api_version=api_version, max_retries=0
    )
    return OpenAILLM(client, model=model, dialect="azure")
