"""The port of embedding models, its error, and normalization of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memory_api.core.errors import ServiceUnavailable

Vectors = NDArray[np.float32]


class EmbedderUnavailable(ServiceUnavailable):
    """The embedding provider did not return usable vectors. Retry later."""

    code = "embedder_failed"


class Embedder(Protocol):
    """Converts texts to unit vectors. All tasks of a process share one instance concurrently."""

    @property
    def model(self) -> str:
        """The label stored with vectors: provider, model and everything else that changes a vector.
        Vectors with different labels are never compared.
        """
        ...

    @property
    def dimensions(self) -> int: ...

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return an array of shape (len(texts), dimensions): one unit vector per text, in order. A
        blank text gets a zero row. Raises EmbedderUnavailable.
        """
        ...

    async def embed_query(self, text: str) -> Vectors:
        """Return a vector of shape (dimensions,), to be compared with documents by inner product.
        Raises EmbedderUnavailable.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and release models."""
        ...


class MemoryEmbedder(Embedder, Protocol):
    """An embedder of memories that are stored. While a tenant moves to another model, they get
    vectors of both.
    """

    async def embed_with_secondary_models(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """Return label → vectors of the other models that memories are stored with."""
        ...


def unit_rows(rows: Vectors) -> Vectors:
    """Scale each row of an array of shape (n, d) to length 1. Zero rows stay zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
