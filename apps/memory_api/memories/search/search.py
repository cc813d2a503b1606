"""Searches memories: embed the query, call `hansei_search` once, and rank inactive
memories here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack
from uuid import UUID

import numpy as np
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import Sessions, asyncpg_connection, current_tenant_id
from apps.memory_api.core.metrics import SEARCH_DURATION, observe_duration
from apps.memory_api.core.tracing import span
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.memories.index.scopes import ScopeAddress, ScopeArea
from apps.memory_api.memories.schemas import MemoryStatus
from apps.memory_api.memories.search.inactive import rank_inactive
from apps.memory_api.memories.search.query import (
    SEARCH_CALL,
    EmbeddedQuery,
    SearchFilters,
    SearchHit,
    SearchOptions,
    SearchResults,
    build_call,
    parse_rows,
)
from apps.memory_api.text.terms import query_terms


async def embed_query(embedder: Embedder, query_text: str) -> EmbeddedQuery:
    """Tokenizes and embeds a query. An empty query is not embedded. No transaction may be open."""
    if not query_text.strip():
        return EmbeddedQuery(embedder.model, np.zeros(1, np.float32), {})
    return EmbeddedQuery(
        embedder.model, await embedder.embed_query(query_text), query_terms(query_text)
    )


async def search_in_session(
    session: AsyncSession,
    query: EmbeddedQuery,
    addresses: Sequence[ScopeAddress | ScopeArea],
    **options: Unpack[SearchOptions],
) -> list[SearchHit]:
    """Searches the scopes in an open transaction. An empty query lists memories by usefulness, then
    importance.
    """
    if not addresses:
        return []
    await session.flush()
    driver = await asyncpg_connection(session)
    rows = await driver.fetch(
        SEARCH_CALL, current_tenant_id(session), *build_call(query, addresses, options)
    )
    return parse_rows(rows).hits


async def search_once(
    sessions: Sessions,
    tenant_id: UUID,
    query: EmbeddedQuery,
    addresses: Sequence[ScopeAddress | ScopeArea],
    **options: Unpack[SearchOptions],
) -> SearchResults:
    """`search_in_session` without a transaction: one round trip, which also binds the tenant."""
    if not addresses:
        return SearchResults([])
    async with sessions.raw_connection() as driver:
        rows = await driver.fetch(SEARCH_CALL, tenant_id, *build_call(query, addresses, options))
    return parse_rows(rows)


MAX_INACTIVE_ROWS = 1_000
"""Maximum number of inactive memories that one search ranks. The most useful ones are used."""


async def search_memories(
    sessions: Sessions,
    embedder: Embedder,
    tenant_id: UUID,
    query_text: str,
    addresses: Sequence[ScopeAddress | ScopeArea],
    **options: Unpack[SearchOptions],
) -> SearchResults:
    """Searches the scopes for a text. An empty text lists memories by usefulness, then
    importance.
    """
    with observe_duration(SEARCH_DURATION), span("search"):
        return await _search_text(sessions, embedder, tenant_id, query_text, addresses, **options)


async def _search_text(
    sessions: Sessions,
    embedder: Embedder,
    tenant_id: UUID,
    query_text: str,
    addresses: Sequence[ScopeAddress | ScopeArea],
    **options: Unpack[SearchOptions],
) -> SearchResults:
    query = await embed_query(embedder, query_text)
    filters = options.get("filters") or SearchFilters()
    if filters.status is MemoryStatus.ACTIVE or query.is_empty:
        return await search_once(sessions, tenant_id, query, addresses, **options)
    listing = SearchOptions(
        filters=filters, top_k=MAX_INACTIVE_ROWS, with_header=options.get("with_header", False)
    )
    listed = await search_once(sessions, tenant_id, query, addresses, **listing)
    if not listed.hits:
        return listed
    vectors = await embedder.embed_documents([hit.memory.searchable_text for hit in listed.hits])
    cosines = (vectors @ query.vector).astype(np.float64)
    return SearchResults(rank_inactive(listed.hits, cosines, query, options), listed.header)
