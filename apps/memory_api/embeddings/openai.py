"""Embeddings over OpenAI's own SDK: OpenAI itself and every server that speaks its protocol."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import openai
import structlog
from openai.types import CreateEmbeddingResponse

from apps.memory_api.embeddings.port import EmbedderFailed, Vectors
from apps.memory_api.embeddings.vectors import unit_rows

log = structlog.stdlib.get_logger(__name__)

DEFAULT_MODEL: Final = "text-embedding-3-small"
DEFAULT_DIMENSIONS: Final = {"text-embedding-3-small": 1024, "text-embedding-3-large": 1024}
"""What is asked for when nothing is said: the longest vector that one index entry holds."""
MAX_CHARACTERS: Final = 8000
"""Read of one text; the provider takes 8,192 tokens, and scripts of a token per character exist."""
BATCH_TEXTS: Final = 128
BATCH_CHARACTERS: Final = 200_000
"""Bounds of one request; the provider's are 2,048 texts and 300,000 tokens."""
MAX_WAIT: Final = 20.0
"""Seconds waited at most between attempts; a provider that asks for more is given up on."""

_RETRIED: Final = frozenset({408, 409, 429})
"""HTTP statuses below 500 that another attempt may cure."""


class OpenAIEmbedder:
    """One model behind `/embeddings`."""

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        *,
        model: str,
        dimensions: int,
        attempts: int = 3,
        first_wait: float = 0.5,
        timeout: float = 30.0,
    ) -> None:
        """`client` must not retry by itself. `attempts` of one request, 1 or more, of `timeout`
        seconds each, with waits of `first_wait` seconds, doubled each time, unless the provider
        says how long."""
        self._client = client
        self._name = model
        self._dimensions = dimensions
        self._attempts = attempts
        self._first_wait = first_wait
        self._timeout = timeout
        self._ask_dimensions = True

    @property
    def model(self) -> str:
        """Vectors cut to different lengths have different keys."""
        return f"openai/{self._name}@{self._dimensions}"

    @property
    def dimensions(self) -> int:
        return self._dimensions

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """One request after another, each of a bounded size. Blank texts are not sent (the provider
        refuses them), their rows are zero. Raises EmbedderFailed when any request fails."""
        out = np.zeros((len(texts), self._dimensions), np.float32)
        for positions in batches(texts):
            out[positions] = await self._embed([_clean(texts[i]) for i in positions])
        return out

    async def embed_query(self, text: str) -> Vectors:
        return (await self.embed_documents([text]))[0]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _embed(self, texts: list[str]) -> Vectors:
        """Unit rows of non-blank texts, shape (len(texts), dimensions)."""
        try:
            return self._rows(await self._request(texts), len(texts))
        except (openai.OpenAIError, TimeoutError, ValueError) as error:
            cause = str(error) or f"no answer within {self._timeout:g} s"
            log.error("embedding failed", model=self._name, texts=len(texts), error=cause)
            raise EmbedderFailed(f"no embeddings from {self._name}: {cause}"[:1000]) from error

    async def _request(self, texts: list[str]) -> CreateEmbeddingResponse:
        attempt = 1
        while True:
            asked = self._ask_dimensions
            try:
                return await self._create(texts, asked)
            except (openai.APIStatusError, openai.APIConnectionError, TimeoutError) as error:
                if asked and _refuses_dimensions(error):
                    self._ask_dimensions = False
                    continue
                wait = self._wait(error, attempt)
                if wait is None:
                    raise
                await asyncio.sleep(wait)
                attempt += 1

    def _wait(self, error: Exception, attempt: int) -> float | None:
        """Seconds until the next attempt; None for no other, because another would fail as well or
        would come later than it is worth waiting."""
        wait = self._first_wait * 2 ** (attempt - 1)
        if isinstance(error, openai.APIStatusError):
            retried = error.status_code >= 500 or error.status_code in _RETRIED
            if not retried or error.code == "insufficient_quota":
                return None
            wait = _retry_after(error.response.headers.get("retry-after"), wait)
        return wait if attempt < self._attempts and wait <= MAX_WAIT else None

    async def _create(self, texts: list[str], ask_dimensions: bool) -> CreateEmbeddingResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._client.embeddings.create(
                    input=texts,
                    model=self._name,
                    dimensions=self._dimensions if ask_dimensions else openai.omit,
                )
        except (AttributeError, TypeError) as error:
            # How the SDK fails on an answer with status 200 that is, say, a page of HTML.
            raise ValueError(f"the answer is not a list of embeddings: {error}") from error

    def _rows(self, response: object, count: int) -> Vectors:
        """In the order asked. Raises ValueError on what is not one vector of our length per text:
        the SDK does not validate, a proxy may lie, and a wrong vector would be stored for good."""
        data = getattr(response, "data", None)
        if not isinstance(response, CreateEmbeddingResponse) or not isinstance(data, list):
            raise ValueError(f"the answer is not a list of embeddings: {response!s:.200}")
        found: dict[int, list[float]] = {
            getattr(item, "index", i): getattr(item, "embedding", None) or list[float]()
            for i, item in enumerate(response.data)
        }
        if len(response.data) != count or found.keys() != set(range(count)):
            raise ValueError(f"{count} texts were sent, {len(response.data)} vectors came back")
        lengths = {len(vector) for vector in found.values()}
        if lengths != {self._dimensions}:
            raise ValueError(f"vectors of {lengths} numbers came, {self._dimensions} are expected")
        with np.errstate(over="ignore"):
            rows = np.array([found[i] for i in range(count)], np.float32)
        if not np.isfinite(rows).all() or not rows.any(axis=1).all():
            raise ValueError("a vector is zero or not finite")
        return unit_rows(rows)


def batches(texts: Sequence[str]) -> list[list[int]]:
    """Positions of the non-blank texts, grouped so that each request keeps its bounds."""
    groups: list[list[int]] = []
    room = 0
    for i, text in enumerate(texts):
        if not text.strip():
            continue
        size = min(len(text), MAX_CHARACTERS)
        if not groups or len(groups[-1]) == BATCH_TEXTS or size > room:
            groups.append([])
            room = BATCH_CHARACTERS
        groups[-1].append(i)
        room -= size
    return groups


def open_openai(
    *, model: str | None, api_key: str | None, base_url: str | None, dimensions: int | None
) -> OpenAIEmbedder:
    """OpenAI, or the compatible server at `base_url` (with its `/v1`), which may need no key.
    Raises ValueError when the key or the length of the vectors is missing."""
    if not api_key and base_url is None:
        raise ValueError("the embedding provider openai needs OPENAI_API_KEY or OPENAI_BASE_URL")
    name = model or DEFAULT_MODEL
    length = dimensions or DEFAULT_DIMENSIONS.get(name)
    if length is None:
        raise ValueError(
            f"say how long the vectors of {name} are: --dimensions, HANSEI_EMBEDDING_DIMENSIONS"
        )
    client = openai.AsyncOpenAI(api_key=api_key or "none", base_url=base_url, max_retries=0)
    return OpenAIEmbedder(client, model=name, dimensions=length)


def _refuses_dimensions(error: Exception) -> bool:
    """Servers of models with one fixed length refuse the field even when the length is theirs. It
    is not sent again then; the length of what comes is checked anyway."""
    return isinstance(error, openai.BadRequestError) and "dimension" in error.message.lower()


def _clean(text: str) -> str:
    """What is sent: the beginning of a long text, lone surrogates as question marks."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def _retry_after(header: str | None, otherwise: float) -> float:
    """Seconds of a Retry-After header; its date form and nonsense count as not said."""
    try:
        seconds = float(header or "")
    except ValueError:
        return otherwise
    return seconds if math.isfinite(seconds) and seconds >= 0 else otherwise
