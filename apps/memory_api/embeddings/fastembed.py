"""Embeddings by the fastembed library (ONNX, no torch): better models than the bundled one, on this
machine. An extra: `pip install 'hansei[fastembed]'`. A model is downloaded when first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

import numpy as np
import structlog

from apps.memory_api.embeddings.port import EmbedderFailed, Vectors
from apps.memory_api.embeddings.vectors import unit_rows

log = structlog.stdlib.get_logger(__name__)

DEFAULT_MODEL: Final = "BAAI/bge-small-en-v1.5"
MAX_CHARACTERS: Final = 8192
"""Read of one text; the models themselves cut at 512 tokens or so."""
_BATCH: Final = 32


class Engine(Protocol):
    """The part of `fastembed.TextEmbedding` that is used. Vectors come in the texts' order."""

    @property
    def embedding_size(self) -> int: ...

    def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterable[Any]: ...

    def query_embed(self, query: Iterable[str]) -> Iterable[Any]: ...


class FastEmbedder:
    """One engine in this process. Work goes to a thread, one call at a time: each already uses
    every core."""

    def __init__(self, engine: Engine, *, model: str) -> None:
        self._engine = engine
        self._name = model
        self._one_at_a_time = asyncio.Lock()

    @property
    def model(self) -> str:
        return f"fastembed/{self._name}"

    @property
    def dimensions(self) -> int:
        return self._engine.embedding_size

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Blank texts give zero rows. Raises EmbedderFailed."""
        return await self._run(texts, query=False)

    async def embed_query(self, text: str) -> Vectors:
        """Models with a prefix for questions get it. Raises EmbedderFailed."""
        return (await self._run([text], query=True))[0]

    async def aclose(self) -> None:
        """The model goes with the process."""

    async def _run(self, texts: Sequence[str], *, query: bool) -> Vectors:
        out = np.zeros((len(texts), self.dimensions), np.float32)
        kept = [i for i, text in enumerate(texts) if text.strip()]
        if not kept:
            return out
        async with self._one_at_a_time:
            try:
                rows = await asyncio.to_thread(self._embed, [_clean(texts[i]) for i in kept], query)
            except Exception as error:  # ONNX and tokenizers raise bare exceptions of many kinds
                log.exception("embedding failed", model=self._name, texts=len(kept))
                raise EmbedderFailed(f"no embeddings from {self._name}: {error}"[:1000]) from error
        out[kept] = rows
        return out

    def _embed(self, texts: list[str], query: bool) -> Vectors:
        made = (
            self._engine.query_embed(texts)
            if query
            else self._engine.passage_embed(texts, batch_size=_BATCH)
        )
        rows = np.array(list(made), np.float32)
        if rows.shape != (len(texts), self.dimensions):
            raise ValueError(f"{len(texts)} texts gave vectors of shape {rows.shape}")
        return unit_rows(rows)


def open_fastembed(*, model: str | None, dimensions: int | None) -> FastEmbedder:
    """Raises ValueError without the extra, for an unknown model and for a length it has not."""
    try:
        fastembed = import_module("fastembed")
    except ImportError as error:
        raise ValueError(
            "the embedding provider fastembed is an extra: pip install 'hansei[fastembed]'"
        ) from error
    name = model or DEFAULT_MODEL
    engine: Engine = fastembed.TextEmbedding(model_name=name, lazy_load=True)
    if dimensions not in (None, engine.embedding_size):
        raise ValueError(f"vectors of {name} have {engine.embedding_size} dimensions, no others")
    return FastEmbedder(engine, model=name)


def _clean(text: str) -> str:
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
