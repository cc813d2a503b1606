"""The default embedder: a bundled static model, with hashed vectors for scripts it does not know.

It needs no key, no network and no torch. The model has one vector per token; a text gets the mean
of its tokens' vectors. The files are read directly with safetensors and tokenizers, because
importing model2vec takes longer than loading the model (docs/decisions/embedding-model.md).

Hashed vectors represent spelling and not meaning. A text is split into units: character pairs of
CJK and Hangul, words and character trigrams of other scripts. The bits of a unit's BLAKE2b hash
give its fixed pseudo-random vector of ±1. Texts that share units have similar vectors; the vectors
of other texts are nearly orthogonal (cosine 0 ± 1/√d).
"""

from __future__ import annotations

import asyncio
import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray
from safetensors.numpy import load
from tokenizers import Tokenizer

from memory_api.core.telemetry import get_logger
from memory_api.embeddings.port import Vectors, unit_rows

_PAIRED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Yi}ー"
_LETTERS = r"[\p{L}\p{M}\p{N}]--[\p{Latin}0-9]"
_NON_LATIN = regex.compile(
    rf"(?P<paired>[{_PAIRED}]+)|(?P<word>[[{_LETTERS}]--[{_PAIRED}]]+)", regex.V1
)
_LATIN = regex.compile(r"[\p{Latin}0-9][\p{Latin}\p{Mn}0-9]*")
_HIRAGANA = regex.compile(r"[\p{Hiragana}ー]+")
_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp", "Zs"))
_HIRAGANA_WEIGHT: Final = 0.3
"""Weight of all-hiragana pairs, which are mostly endings and particles."""


def latin_words(text: str) -> list[str]:
    return _LATIN.findall(text)


def non_latin_units(text: str) -> Counter[str]:
    """Count the units of the non-Latin parts of an NFKC text. Empty if it is all Latin."""
    units: Counter[str] = Counter()
    if text.isascii():
        return units
    for match in _NON_LATIN.finditer(text.casefold()):
        run = match[0]
        if match.lastgroup == "paired":
            units.update(run[i : i + 2] for i in range(max(1, len(run) - 1)))
        elif unicodedata.category(run[0])[0] != "M":  # a mark at the start is a Latin accent
            units[run] += 1
            framed = f"#{run}#"
            units.update(framed[i : i + 3] for i in range(len(run)))
    return units


def visible_characters(text: str) -> Counter[str]:
    """Count the visible characters: the units of a text without words, such as emoji."""
    return Counter(c for c in text.casefold() if unicodedata.category(c) not in _INVISIBLE)


def hashed_vector(units: Counter[str], dimensions: int) -> Vectors:
    """Return a unit vector of shape (dimensions,): the sum of the units' vectors, weighted by
    √count. It is zero if there are no units. `dimensions` is a multiple of 8, at most 512.
    """
    if not units:
        return np.zeros(dimensions, np.float32)
    bits = np.frombuffer(b"".join(_digest(unit, dimensions // 8) for unit in units), np.uint8)
    signs = np.unpackbits(bits).reshape(len(units), dimensions).astype(np.float32) * 2 - 1
    weights = np.sqrt(np.fromiter(units.values(), np.float32, len(units)))
    is_hiragana = np.fromiter(
        (_HIRAGANA.fullmatch(unit) is not None for unit in units), np.bool_, len(units)
    )
    weights[is_hiragana] *= _HIRAGANA_WEIGHT
    return unit_rows((weights @ signs)[np.newaxis])[0]


@lru_cache(maxsize=1 << 14)
def _digest(unit: str, size: int) -> bytes:
    return blake2b(unit.encode(), digest_size=size).digest()


log = get_logger(__name__)

MODEL_DIRECTORY: Final = Path(__file__).parents[1] / "model"
CHECKSUMS: Final = {
    "model.safetensors": "99647dfd8725a6a3fa90529e2c9716fcebf4d6b4c17530121ca4e776281bad5f",
    "tokenizer.json": "dd33465341c98889c3338356b6200c8b232b89af5f1b7aa8e6ee1d4d7a699631",
}
"""SHA-256 of the model's files. Stored vectors are comparable only with vectors of these files."""
MAX_CHARACTERS: Final = 8192
"""Maximum characters of a text that are embedded. Bounds the time; a mean over more tokens would be
less specific.
"""
_BATCH_SIZE: Final = 256


class StaticEmbedder:
    """all-MiniLM-L6-v2, distilled to 29,525 token vectors, plus hashed vectors for other scripts.

    It represents meaning for English, and only spelling for other scripts. Thread-safe.
    """

    model: str = "static-minilm-256/1"
    """Increase the number with any change of files, limits or hashing."""
    dimensions: int = 256

    def __init__(self, directory: Path = MODEL_DIRECTORY) -> None:
        """Load and verify the model, in about 50 ms. Raises ValueError if a file is missing or has
        another checksum.
        """
        self._token_vectors: NDArray[np.int8] = load(
            _read_verified(directory / "model.safetensors")
        )["embeddings"]
        self._tokenizer = Tokenizer.from_buffer(_read_verified(directory / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._unknown_token = self._tokenizer.token_to_id("[UNK]")

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """A large batch runs in a thread, so that it does not block the event loop."""
        if sum(map(len, texts)) <= MAX_CHARACTERS:
            return self._embed(texts)
        return await asyncio.to_thread(self._embed, texts)

    async def embed_query(self, text: str) -> Vectors:
        """Runs in the event loop: usually takes about 0.1 ms."""
        return self._embed([text])[0]

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _embed(self, texts: Sequence[str]) -> Vectors:
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), _BATCH_SIZE):
            out[start : start + _BATCH_SIZE] = self._embed_batch(texts[start : start + _BATCH_SIZE])
        return out

    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        split_texts = [_split_scripts(text) for text in texts]
        rows = unit_rows(self._sum_token_vectors([split.latin for split in split_texts]))
        for i, split in enumerate(split_texts):
            if split.units:
                hashed = hashed_vector(split.units, self.dimensions)
                mixed = math.sqrt(1 - split.hashed_share) * rows[i]
                mixed += math.sqrt(split.hashed_share) * hashed
                rows[i] = unit_rows(mixed[np.newaxis])[0]
            elif not rows[i].any():
                rows[i] = hashed_vector(visible_characters(split.latin), self.dimensions)
        return rows

    def _sum_token_vectors(self, texts: list[str]) -> Vectors:
        """The sum of the token vectors of each text, whose direction is that of their mean. Zero if
        no token is known.
        """
        out = np.zeros((len(texts), self.dimensions), np.float32)
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for i, encoding in enumerate(encodings):
            ids = [token for token in encoding.ids if token != self._unknown_token]
            if ids:
                out[i] = self._token_vectors.take(ids, axis=0).sum(axis=0, dtype=np.float32)
        return out


def open_static(*, model: str | None, dimensions: int | None) -> StaticEmbedder:
    """Open the static embedder. Ignores `model` with a warning, because other tools also read the
    variable EMBEDDING_MODEL. Raises ValueError for another length.
    """
    if model not in (None, StaticEmbedder.model):
        log.warning("embedding_model_ignored", provider="static", model=model)
    if dimensions not in (None, StaticEmbedder.dimensions):
        raise ValueError(
            f"The embedding provider static supports only {StaticEmbedder.dimensions} dimensions."
        )
    return StaticEmbedder()


class _SplitText(NamedTuple):
    """The Latin part of a text for the model, the other units for hashing, and their share."""

    latin: str
    units: Counter[str]
    hashed_share: float


def _split_scripts(text: str) -> _SplitText:
    """Split a text by script. An all-Latin text is not changed. In a mixed text, a Latin word has
    the weight of two units.
    """
    clean = _clean(text)
    units = non_latin_units(clean)
    if not units:
        return _SplitText(clean, units, 0.0)
    words = latin_words(clean)
    count = units.total()
    return _SplitText(" ".join(words), units, count / (count + 2 * len(words)))


def _clean(text: str) -> str:
    """Truncate, replace lone surrogates by question marks, and normalize to NFKC."""
    text = text[:MAX_CHARACTERS]
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode("utf-8"))


def _read_verified(file: Path) -> bytes:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(
            f"Cannot read the embedding model's {file.name} ({error.strerror}). "
            "Reinstall hansei-server."
        ) from error
    if sha256(data).hexdigest() != CHECKSUMS[file.name]:
        raise ValueError(
            f"The embedding model's {file.name} has been changed. Reinstall hansei-server."
        )
    return data
