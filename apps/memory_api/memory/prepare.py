"""Before the transaction: text is tokenised and embedded, so that saving only saves."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from apps.memory_api.core.ids import new_id
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.embeddings.tenant import TenantEmbedder
from apps.memory_api.memory.schemas import Kind, Status
from apps.memory_api.memory.scopes import Address, kind_scope
from apps.memory_api.text.tokens import document_weights

_NOT_ALNUM = re.compile(r"[\W_]+")
MAX_TERMS = 4_000
"""Terms indexed of one memory: the heaviest; a memory is a lesson, not a book."""


@dataclass(frozen=True)
class Draft:
    """A memory to be written."""

    kind: Kind
    project_id: str
    content: str
    address: Address | None = None
    key: str | None = None
    section: str | None = None
    title: str | None = None
    when_to_use: str | None = None
    keywords: Sequence[str] = ()
    tags: Sequence[str] = ()
    importance: float = 0.5
    confidence: float | None = None
    source: str = "api"
    status: Status = Status.ACTIVE
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
    def scope_address(self) -> Address:
        return self.address or kind_scope(self.project_id, self.kind)

    @property
    def searchable_text(self) -> str:
        """What search reads: the title, when to use it, the advice and its keywords."""
        parts = [self.title, self.when_to_use, self.content, " ".join(self.keywords)]
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Prepared:
    """A draft with all that search needs of it. `vectors` maps a model's label to a vector of unit
    length, shape (dimensions,); the model that is searched with comes first.
    """

    draft: Draft
    vectors: Mapping[str, NDArray[np.float32]]
    weights: dict[int, float]
    fingerprint: bytes

    @property
    def model(self) -> str:
        """The model that is searched with."""
        return next(iter(self.vectors))

    @property
    def vector(self) -> NDArray[np.float32]:
        """Of that model."""
        return self.vectors[self.model]


async def prepare(embedder: Embedder, drafts: Sequence[Draft]) -> list[Prepared]:
    """Tokenise and embed, all in one call of each embedder. No transaction may be open."""
    if not drafts:
        return []
    texts = [draft.searchable_text for draft in drafts]
    made = {embedder.model: await embedder.embed_documents(texts)}
    if isinstance(embedder, TenantEmbedder):
        made |= await embedder.embed_beside(texts)
    return [
        Prepared(
            draft,
            {model: vectors[number] for model, vectors in made.items()},
            heaviest(document_weights(text)),
            fingerprint(draft.content),
        )
        for number, (draft, text) in enumerate(zip(drafts, texts, strict=True))
    ]


def fingerprint(content: str) -> bytes:
    """The same for texts that differ only in case, width, spacing or punctuation."""
    folded = unicodedata.normalize("NFKC", content).casefold()
    kept = _NOT_ALNUM.sub("", folded)
    return hashlib.blake2b((kept or folded).encode(), digest_size=16).digest()


def heaviest(weights: dict[int, float]) -> dict[int, float]:
    """The terms of a memory that are indexed."""
    if len(weights) <= MAX_TERMS:
        return weights
    kept = sorted(weights.items(), key=lambda item: -item[1])[:MAX_TERMS]
    return dict(kept)
