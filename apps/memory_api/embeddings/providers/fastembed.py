"""Local embedding models with the fastembed library (ONNX, no torch), better than the bundled
model.

Needs the extra `pip install 'hansei-server[fastembed]'`. A model is downloaded on first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

import numpy as np

from memory_api.core.telemetry import get_logger
from memory_api.embeddings.port import EmbedderUnavailable, Vectors, unit_rows

log = get_logger(__name__)

DEFAULT_MODEL: Final = "BAAI/bge-small-en-v1.5"
MAX_CHARACTERS: Final = 8192
"""Maximum characters of a text that are embedded. The models use about 512 tokens of it."""
_BATCH_SIZE: Final = 32


class Engine(Protocol):
    """The used part of `fastembed.TextEmbedding`. Vectors have the order of the texts."""

    @property
    def embedding_size(self) -> int: ...

    def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterable[Any]: ...

    def query_embed(self, query: Iterable[str]) -> Iterable[Any]: ...


class FastEmbedder:
    """Runs an engine in a thread, one call at a time, because each call uses all cores."""

    def __init__(self, engine: Engine, *, model: str) -> None:
        self._engine = engine
        self._name = model
        self._lock = asyncio.Lock()

    @property
    def model(self) -> str:
        return f"fastembed/{self._name}"

    @property
    def dimensions(self) -> int:
        return self._engine.embedding_size

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Blank texts get zero rows. Raises EmbedderUnavailable."""
        return await self._run(texts, query=False)

    async def embed_query(self, text: str) -> Vectors:
        """Adds the query prefix if the model has one. Raises EmbedderUnavailable."""
        return (await self._run([text], query=True))[0]

    async def aclose(self) -> None:
        """Does nothing: the model stays loaded until the process ends."""

    async def _run(self, texts: Sequence[str], *, query: bool) -> Vectors:
        out = np.zeros((len(texts), self.dimensions), np.float32)
        not_blank = [i for i, text in enumerate(texts) if text.strip()]
        if not not_blank:
            return out
        cleaned = [_clean(texts[i]) for i in not_blank]
        async with self._lock:
            try:
                rows = await asyncio.to_thread(self._embed, cleaned, query)
            except Exception as error:  # ONNX and tokenizers raise many unrelated exception types
                log.error("embedding_failed", model=self._name, texts=len(cleaned), exc_info=True)
                raise EmbedderUnavailable(
                    f"{self._name} returned no embeddings: {error}"[:1000]
                ) from error
        out[not_blank] = rows
        return out

    def _embed(self, texts: list[str], query: bool) -> Vectors:
        vectors = (
            self._engine.query_embed(texts)
            if query
            else self._engine.passage_embed(texts, batch_size=_BATCH_SIZE)
        )
        rows = np.array(list(vectors), np.float32)
        if rows.shape != (len(texts), self.dimensions):
            raise ValueError(f"{len(texts)} texts returned an array of shape {rows.shape}")
        return unit_rows(rows)


def open_fastembed(*, model: str | None, dimensions: int | None) -> FastEmbedder:
    """Raises ValueError if the extra is not installed, the model is unknown, or its vectors do not
    have `dimensions`.
    """
    try:
        fastembed = import_module("fastembed")
    except ImportError as error:
        raise ValueError(
            "The embedding provider fastembed is not installed."
            " Run `pip install 'hansei-server[fastembed]'`."
        ) from error
    name = model or DEFAULT_MODEL
    engine: Engine = fastembed.TextEmbedding(model_name=name, lazy_load=True)
    if dimensions not in (None, engine.embedding_size):
        raise ValueError(f"The model {name} supports only {engine.embedding_size} dimensions.")
    return FastEmbedder(engine, model=name)


def _clean(text: str) -> str:
    """Truncate, and replace lone surrogates by question marks."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
