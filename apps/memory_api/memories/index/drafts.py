"""Memories before they are stored: drafts, their fingerprints, terms and vectors."""

from __future__ import annotations

import asyncio
import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from memory_api.core.ids import new_id
from memory_api.core.isolated_work import MAX_INLINE_SIZE
from memory_api.embeddings.port import MemoryEmbedder
from memory_api.memories.index.scopes import ScopeAddress, kind_scope
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.text.terms import document_weights

_WORD = re.compile(r"[^\W_]+")
_ARTICLES = ("a", "an", "the")
ADVICE_KINDS = (MemoryKind.STRATEGY, MemoryKind.INSIGHT)
"""Kinds that agents read as advice and that can become bullets."""
MAX_TERMS = 4_000
"""Maximum number of indexed terms of one memory, those with the highest weights."""


@dataclass(frozen=True)
class MemoryDraft:
    """A memory before it is tokenized, embedded and stored."""

    kind: MemoryKind
    project_id: str
    content: str
    address: ScopeAddress | None = None
    key: str | None = None
    section: str | None = None
    title: str | None = None
    when_to_use: str | None = None
    keywords: Sequence[str] = ()
    tags: Sequence[str] = ()
    importance: float = 0.5
    confidence: float | None = None
    source: str = "api"
    status: MemoryStatus = MemoryStatus.ACTIVE
    awaiting_confirmation: bool = False
    is_guarded: bool = False
    """Whether the guard against outside text has seen it, or a client stores it as its author.
    Advice is not stored otherwise (`reflection/outside_text.py`).
    """
    error_category: str | None = None
    outcome: str | None = None
    session_id: str | None = None
    trace_id: UUID | None = None
    source_event_ids: Sequence[str] = ()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    reason: str | None = None
    actor: str | None = None
    run_id: UUID | None = None
    id: UUID = field(default_factory=new_id)

    @property
    def scope_address(self) -> ScopeAddress:
        return self.address or kind_scope(self.project_id, self.kind)

    @property
    def searchable_text(self) -> str:
        """The indexed text: title, condition, content and keywords."""
        parts = [self.title, self.when_to_use, self.content, " ".join(self.keywords)]
        return "\n".join(part for part in parts if part)


def fingerprint(content: str) -> bytes:
    """A hash of the words in their order, whatever their case, width, spacing, punctuation and
    articles. Texts with the same fingerprint are duplicates (docs/decisions/near-duplicates.md).
    """
    folded = unicodedata.normalize("NFKC", content).casefold()
    words = "".join(word for word in _WORD.findall(folded) if word not in _ARTICLES)
    return hashlib.blake2b((words or folded).encode(), digest_size=16).digest()


@dataclass(frozen=True)
class PreparedMemory:
    """A draft with its terms and vectors. `weights` maps term IDs to BM25 weights. `vectors` maps
    the label of a model to a unit vector of shape (dimensions,). The search model comes first.
    """

    draft: MemoryDraft
    vectors: Mapping[str, NDArray[np.float32]]
    weights: dict[int, float]
    fingerprint: bytes

    @property
    def model(self) -> str:
        """The model that search uses."""
        return next(iter(self.vectors))

    @property
    def vector(self) -> NDArray[np.float32]:
        """The vector of the search model."""
        return self.vectors[self.model]


async def prepare_memories(
    embedder: MemoryEmbedder, drafts: Sequence[MemoryDraft]
) -> list[PreparedMemory]:
    """Tokenizes and embeds all drafts with one call of each embedder. No transaction may
    be open.
    """
    if not drafts:
        return []
    texts = [draft.searchable_text for draft in drafts]
    vectors_by_model = {embedder.model: await embedder.embed_documents(texts)}
    vectors_by_model |= await embedder.embed_with_secondary_models(texts)
    # In a thread if it takes long: 20,000 bullets need five seconds, in which others are served.
    is_large = sum(map(len, texts)) > MAX_INLINE_SIZE
    indexed = await asyncio.to_thread(_index_texts, drafts) if is_large else _index_texts(drafts)
    return [
        PreparedMemory(
            draft,
            {model: vectors[index] for model, vectors in vectors_by_model.items()},
            weights,
            hashed,
        )
        for index, (draft, (weights, hashed)) in enumerate(zip(drafts, indexed, strict=True))
    ]


def _index_texts(drafts: Sequence[MemoryDraft]) -> list[tuple[dict[int, float], bytes]]:
    """The weights of the terms and the fingerprint of each draft."""
    return [
        (top_terms(document_weights(draft.searchable_text)), fingerprint(draft.content))
        for draft in drafts
    ]


def top_terms(weights: dict[int, float]) -> dict[int, float]:
    """The indexed terms of a memory: at most `MAX_TERMS`, those with the highest weights."""
    if len(weights) <= MAX_TERMS:
        return weights
    return dict(sorted(weights.items(), key=lambda item: -item[1])[:MAX_TERMS])
