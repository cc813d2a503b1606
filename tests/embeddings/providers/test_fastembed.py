"""FastEmbedder over an engine of the library's shape. The library is an extra and its models are
downloads, so here a small engine stands in for the ONNX session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.embeddings.providers.fastembed import MAX_CHARACTERS, FastEmbedder


@dataclass
class LetterEngine:
    """Counts of six letters, one more for a question."""

    embedding_size: int = 7
    seen: list[str] = field(default_factory=list)

    def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterator[np.ndarray]:
        for text in texts:
            self.seen.append(text)
            yield np.array([*(text.count(c) + 1 for c in "abcdef"), 0], np.float64)

    def query_embed(self, query: Iterable[str]) -> Iterator[np.ndarray]:
        for vector in self.passage_embed(query, batch_size=1):
            vector[-1] = 1
            yield vector


async def test_documents_keep_order_and_are_normalized() -> None:
    engine = LetterEngine()
    embedder = FastEmbedder(engine, model="letters")
    rows = await embedder.embed_documents(["aaa", " ", "bbb", "x" * 20_000 + "\ud800"])
    assert (embedder.model, embedder.dimensions) == ("fastembed/letters", 7)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 0, 1, 1], rtol=1e-6)
    assert rows[0].argmax() == 0
    assert rows[2].argmax() == 1
    assert engine.seen == ["aaa", "bbb", "x" * MAX_CHARACTERS]


async def test_queries_and_documents_are_embedded_differently() -> None:
    query = await FastEmbedder(LetterEngine(), model="letters").embed_query("a")
    assert query.shape == (7,)
    assert query[-1] > 0


async def test_failures_and_wrong_shapes_are_logged_and_raised(logs: list[Any]) -> None:
    class Broken(LetterEngine):
        def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterator[np.ndarray]:
            raise RuntimeError("onnx says no")

    for engine, cause in ((Broken(), "onnx says no"), (LetterEngine(embedding_size=5), "shape")):
        with pytest.raises(EmbedderUnavailable, match=cause):
            await FastEmbedder(engine, model="letters").embed_documents(["a"])
    assert [entry["event"] for entry in logs] == ["embedding_failed"] * 2
