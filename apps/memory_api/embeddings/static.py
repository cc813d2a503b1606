"""The default embedder: a static model that ships with the package. No key, no network, no torch.

Every token has one vector; a text is the mean of its tokens'. The files are read with the two
libraries that model2vec itself stands on, because importing model2vec costs more than loading the
model (docs/decisions/embedding-model.md).
"""

from __future__ import annotations

import asyncio
import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray
from safetensors.numpy import load
from tokenizers import Tokenizer

from apps.memory_api.embeddings.hashed import any_units, foreign_units, hashed_vector, latin_words
from apps.memory_api.embeddings.port import Vectors
from apps.memory_api.embeddings.vectors import unit_rows

log = structlog.stdlib.get_logger(__name__)

FOLDER: Final = Path(__file__).parent / "model"
CHECKSUMS: Final = {
    "model.safetensors": "99647dfd8725a6a3fa90529e2c9716fcebf4d6b4c17530121ca4e776281bad5f",
    "tokenizer.json": "dd33465341c98889c3338356b6200c8b232b89af5f1b7aa8e6ee1d4d7a699631",
}
"""SHA-256 of the files that make the vectors: stored vectors are only comparable with these."""
MAX_CHARACTERS: Final = 8192
"""What is read of one text; a mean over more says less, and time stays bounded."""
_BATCH: Final = 256


class StaticEmbedder:
    """all-MiniLM-L6-v2 distilled to 29,525 token vectors, and hashes for what it cannot read.

    It knows the meaning of English, and of other scripts the spelling only. Safe between threads.
    """

    model: str = "static-minilm-256/1"
    """The number rises with any change of files, limits or hashing."""
    dimensions: int = 256

    def __init__(self, folder: Path = FOLDER) -> None:
        """Reads and verifies the model in about 50 ms, without network. Raises ValueError when a
        file is missing or not the shipped one."""
        self._tokens: NDArray[np.int8] = load(_verified(folder / "model.safetensors"))["embeddings"]
        self._tokenizer = Tokenizer.from_buffer(_verified(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._unknown = self._tokenizer.token_to_id("[UNK]")

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """In a thread, so that a large batch does not hold up the event loop."""
        return await asyncio.to_thread(self._embed, texts)

    async def embed_query(self, text: str) -> Vectors:
        """In place: at most 8,192 characters, usually about 0.1 ms."""
        return self._embed([text])[0]

    async def aclose(self) -> None:
        """Nothing is held."""

    def _embed(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), _BATCH):
            out[start : start + _BATCH] = self._embed_batch(texts[start : start + _BATCH])
        return out

    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        readings = [_read(text) for text in texts]
        rows = unit_rows(self._means([reading.latin for reading in readings]))
        for i, reading in enumerate(readings):
            if reading.units:
                hashed = hashed_vector(reading.units, self.dimensions)
                rows[i] *= math.sqrt(1 - reading.share)
                rows[i] += math.sqrt(reading.share) * hashed
            elif not rows[i].any():
                rows[i] = hashed_vector(any_units(reading.latin), self.dimensions)
        return unit_rows(rows)

    def _means(self, texts: list[str]) -> Vectors:
        """Mean token vector of each text, zero where no token is known."""
        out = np.zeros((len(texts), self.dimensions), np.float32)
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for i, encoding in enumerate(encodings):
            ids = [token for token in encoding.ids if token != self._unknown]
            if ids:
                out[i] = self._tokens[ids].mean(axis=0, dtype=np.float32)
        return out


def open_static(*, model: str | None, dimensions: int | None) -> StaticEmbedder:
    """The one static embedder. A model name is not an error, because EMBEDDING_MODEL is a variable
    that other tools read too, but it is said to have no effect. Raises ValueError for a length."""
    if model not in (None, StaticEmbedder.model):
        log.warning("embedding model ignored", provider="static", ignored=model)
    if dimensions not in (None, StaticEmbedder.dimensions):
        raise ValueError(
            f"static embeddings have {StaticEmbedder.dimensions} dimensions, no others"
        )
    return StaticEmbedder()


class _Reading(NamedTuple):
    """A text in two parts: what the model reads, what is hashed, and the hashed part's share."""

    latin: str
    units: Counter[str]
    share: float


def _read(text: str) -> _Reading:
    """A text all in Latin script goes to the model as it is. In a mixed one a Latin word weighs as
    much as two units."""
    clean = _clean(text)
    units = foreign_units(clean)
    if not units:
        return _Reading(clean, units, 0.0)
    words = latin_words(clean)
    count = units.total()
    return _Reading(" ".join(words), units, count / (count + 2 * len(words)))


def _clean(text: str) -> str:
    """The part that is read, in one spelling (NFKC); a lone surrogate becomes a question mark."""
    text = text[:MAX_CHARACTERS]
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode("utf-8"))


def _verified(file: Path) -> bytes:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(
            f"the embedding model lacks {file.name} ({error.strerror}); install hansei again"
        ) from error
    if sha256(data).hexdigest() != CHECKSUMS[file.name]:
        raise ValueError(
            f"the embedding model's {file.name} is not the shipped one; install hansei again"
        )
    return data
