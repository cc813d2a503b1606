"""What the service asks of an embedding model, and how it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apps.memory_api.core.errors import Unavailable

Vectors = NDArray[np.float32]


class EmbedderFailed(Unavailable):
    """The embedding provider did not give usable vectors."""

    code = "embedder_failed"


class Embedder(Protocol):
    """Texts to unit vectors. One instance serves every task of a process at once."""

    @property
    def model(self) -> str:
        """Key under which vectors are stored: it names provider, model and everything else that
        changes a vector. Vectors of different keys are never compared."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), dimensions), one row of length 1 per text in the order given; a zero
        row only for a text with nothing in it. Raises EmbedderFailed."""
        ...

    async def embed_query(self, text: str) -> Vectors:
        """Shape (dimensions,), to be compared with documents by inner product. Raises
        EmbedderFailed."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and models."""
        ...
