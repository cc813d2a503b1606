"""Searches the chunks of collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memory_api.memories.index.scopes import ScopeAddress, ScopeArea, all_collection_scopes
from memory_api.memories.schemas import Match
from memory_api.memories.search.query import SearchHit
from memory_api.memories.search.search import search_memories
from memory_api.runtime import Runtime


@dataclass(frozen=True)
class Passage:
    """A chunk that a search found."""

    memory_id: UUID
    document_id: UUID
    collection: str
    source: str
    title: str | None
    page: int
    start: int
    end: int
    content: str
    cosine: float
    combined_score: float
    match: Match | None


async def search_passages(
    runtime: Runtime,
    tenant_id: UUID,
    project_id: str,
    collections: Sequence[str],
    query_text: str,
    *,
    top_k: int = 5,
    min_match: Match = "none",
) -> list[Passage]:
    """The best chunks of these collections, best first; of all collections of the project if none
    is named. One round trip.
    """
    addresses: list[ScopeAddress | ScopeArea] = [
        (project_id, "collection", name) for name in collections
    ] or [all_collection_scopes(project_id)]
    embedder = await runtime.get_tenant_embedder(tenant_id)
    results = await search_memories(
        runtime.sessions,
        embedder,
        tenant_id,
        query_text,
        addresses,
        top_k=top_k,
        min_match=min_match,
    )
    return [_to_passage(hit) for hit in results.hits if "document_id" in hit.memory.metadata_]


def _to_passage(hit: SearchHit) -> Passage:
    memory, facts = hit.memory, hit.memory.metadata_
    return Passage(
        memory_id=memory.id,
        document_id=UUID(facts["document_id"]),
        collection=facts["collection"],
        source=memory.source,
        title=memory.title,
        page=facts["page"],
        start=facts["start"],
        end=facts["end"],
        content=memory.content,
        cosine=hit.cosine or 0.0,
        combined_score=hit.combined_score,
        match=hit.match,
    )
