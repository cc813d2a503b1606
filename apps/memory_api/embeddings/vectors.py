"""Small arithmetic that every embedder shares."""

from __future__ import annotations

import numpy as np

from apps.memory_api.embeddings.port import Vectors


def unit_rows(rows: Vectors) -> Vectors:
    """Rows of any length to length 1; zero rows stay zero. Shape (n, d), float32."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
