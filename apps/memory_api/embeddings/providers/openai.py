"""Embeddings of OpenAI and compatible servers, with OpenAI's SDK."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import openai
from openai.types import CreateEmbeddingResponse

from memory_api.core.outgoing import PROVIDER_CLIENT
from memory_api.core.telemetry import get_logger
from memory_api.embeddings.port import EmbedderUnavailable, Vectors, unit_rows

log = get_logger(__name__)

DEFAULT_MODEL: Final = "text-embedding-3-small"
DEFAULT_DIMENSIONS: Final = {"text-embedding-3-small": 1024, "text-embedding-3-large": 1024}
"""The longest vector that fits into an index entry."""
MAX_CHARACTERS: Final = 8000
"""Maximum characters of a text that are embedded. The provider accepts 8,192 tokens, and in some
scripts a character is a token.
"""
MAX_BATCH_TEXTS: Final = 128
MAX_BATCH_CHARACTERS: Final = 200_000
"""Limits of one request. The provider's are 2,048 texts and 300,000 tokens."""
MAX_RETRY_DELAY_SECONDS: Final = 20.0
"""If the provider asks for a longer delay, the request fails."""

_RETRYABLE_STATUSES: Final = frozenset({408, 409, 429})
"""HTTP statuses below 500 that a retry may resolve."""


class OpenAIEmbedder:
    """One model behind `/embeddings`."""

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        *,
        model: str,
        dimensions: int,
        attempts: int = 3,
        first_delay: float = 0.5,
        timeout: float = 30.0,
    ) -> None:
        """`client` must not retry. A request has up to `attempts` attempts of `timeout` seconds.
        The delay between them starts at `first_delay` seconds and doubles, unless the provider
        states one.
        """
        self._client = client
        self._name = model
        self._dimensions = dimensions
        self._attempts = attempts
        self._first_delay = first_delay
        self._timeout = timeout
        self._sends_dimensions = True

    @property
    def model(self) -> str:
        """Vectors of different lengths have different labels."""
        return f"openai/{self._name}@{self._dimensions}"

    @property
    def dimensions(self) -> int:
        return self._dimensions

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Send the texts in batches, one after the other. Blank texts get zero rows and are not
        sent, because the provider refuses them. Raises EmbedderUnavailable if any request fails.
        """
        out = np.zeros((len(texts), self._dimensions), np.float32)
        for positions in split_batches(texts):
            out[positions] = await self._embed([_clean(texts[i]) for i in positions])
        return out

    async def embed_query(self, text: str) -> Vectors:
        return (await self.embed_documents([text]))[0]

    async def aclose(self) -> None:
        await self._client.close()

    async def _embed(self, texts: list[str]) -> Vectors:
        """Unit rows of non-blank texts, shape (len(texts), dimensions)."""
        try:
            return self._to_rows(await self._request(texts), len(texts))
        except (openai.OpenAIError, TimeoutError, ValueError) as error:
            cause = str(error) or f"no answer within {self._timeout:g} s"
            log.error("embedding_failed", model=self._name, texts=len(texts), error=cause)
            raise EmbedderUnavailable(
                f"{self._name} returned no embeddings: {cause}"[:1000]
            ) from error

    async def _request(self, texts: list[str]) -> CreateEmbeddingResponse:
        attempt = 1
        while True:
            send_dimensions = self._sends_dimensions
            try:
                return await self._create(texts, send_dimensions)
            except (openai.APIStatusError, openai.APIConnectionError, TimeoutError) as error:
                if send_dimensions and _refuses_dimensions(error):
                    self._sends_dimensions = False
                    continue
                delay = self._retry_delay(error, attempt)
                if delay is None:
                    raise
                await asyncio.sleep(delay)
                attempt += 1

    def _retry_delay(self, error: Exception, attempt: int) -> float | None:
        """Seconds until the next attempt. None if there is no further attempt: a retry would fail
        too, the attempts are used up, or the delay is too long.
        """
        delay = self._first_delay * 2 ** (attempt - 1)
        if isinstance(error, openai.APIStatusError):
            is_retryable = error.status_code >= 500 or error.status_code in _RETRYABLE_STATUSES
            if not is_retryable or error.code == "insufficient_quota":
                return None
            delay = _parse_retry_after(error.response.headers.get("retry-after"), default=delay)
        return delay if attempt < self._attempts and delay <= MAX_RETRY_DELAY_SECONDS else None

    async def _create(self, texts: list[str], send_dimensions: bool) -> CreateEmbeddingResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._client.embeddings.create(
                    input=texts,
                    model=self._name,
                    dimensions=self._dimensions if send_dimensions else openai.omit,
                )
        except (AttributeError, TypeError) as error:
            # The SDK raises these for a response with status 200 that is, for example, HTML.
            raise ValueError(f"the response is not a list of embeddings: {error}") from error

    def _to_rows(self, response: object, count: int) -> Vectors:
        """Validate a response and return its vectors in the order of the texts.

        Raises ValueError unless there is one vector of the expected length per text. The SDK does
        not validate, and a wrong vector would be stored permanently.
        """
        data = getattr(response, "data", None)
        if not isinstance(response, CreateEmbeddingResponse) or not isinstance(data, list):
            raise ValueError(f"the response is not a list of embeddings: {response!s:.200}")
        vectors: dict[int, list[float]] = {
            getattr(item, "index", i): getattr(item, "embedding", None) or list[float]()
            for i, item in enumerate(response.data)
        }
        if len(response.data) != count or vectors.keys() != set(range(count)):
            raise ValueError(f"sent {count} texts, received {len(response.data)} vectors")
        lengths = {len(vector) for vector in vectors.values()}
        if lengths != {self._dimensions}:
            raise ValueError(
                f"received vectors of length {lengths}, expected length {self._dimensions}"
            )
        with np.errstate(over="ignore"):
            rows = np.array([vectors[i] for i in range(count)], np.float32)
        if not np.isfinite(rows).all() or not rows.any(axis=1).all():
            raise ValueError("received a vector that is zero or not finite")
        return unit_rows(rows)


def split_batches(texts: Sequence[str]) -> list[list[int]]:
    """Group the positions of the non-blank texts into requests within the batch limits."""
    batches: list[list[int]] = []
    free_characters = 0
    for i, text in enumerate(texts):
        if not text.strip():
            continue
        size = min(len(text), MAX_CHARACTERS)
        if not batches or len(batches[-1]) == MAX_BATCH_TEXTS or size > free_characters:
            batches.append([])
            free_characters = MAX_BATCH_CHARACTERS
        batches[-1].append(i)
        free_characters -= size
    return batches


def open_openai(
    *, model: str | None, api_key: str | None, base_url: str | None, dimensions: int | None
) -> OpenAIEmbedder:
    """Open OpenAI, or the compatible server at `base_url` (with its `/v1`), which may need no key.
    Raises ValueError if the key or the length of the vectors is missing.
    """
    if not api_key and base_url is None:
        raise ValueError("The embedding provider openai needs OPENAI_API_KEY or OPENAI_BASE_URL.")
    name = model or DEFAULT_MODEL
    length = dimensions or DEFAULT_DIMENSIONS.get(name)
    if length is None:
        raise ValueError(
            f"The vector length of {name} is unknown."
            " Set --dimensions or HANSEI_EMBEDDING_DIMENSIONS."
        )
    client = openai.AsyncOpenAI(
        api_key=api_key or "none",
        base_url=base_url,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(**PROVIDER_CLIENT),
    )
    return OpenAIEmbedder(client, model=name, dimensions=length)


def _refuses_dimensions(error: Exception) -> bool:
    """Whether the server refuses the field `dimensions`. Some servers do, even for the correct
    length. Then it is not sent again; the length of the vectors is checked in any case.
    """
    return isinstance(error, openai.BadRequestError) and "dimension" in error.message.lower()


def _clean(text: str) -> str:
    """Truncate, and replace lone surrogates by question marks."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def _parse_retry_after(header: str | None, *, default: float) -> float:
    """Seconds in a Retry-After header. Returns `default` for a date or an invalid value."""
    try:
        seconds = float(header or "")
    except ValueError:
        return default
    return seconds if math.isfinite(seconds) and seconds >= 0 else default
