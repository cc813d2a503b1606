"""Searches memories: embed the query, call `hansei_search` once, and rank inactive
memories here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Unpack
from uuid import UUID

import asyncpg
import numpy as np
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import Sessions, asyncpg_connection, current_tenant_id
from memory_api.core.metrics import SEARCH_DURATION, observe_duration
from memory_api.core.tracing import span
from memory_api.embeddings.port import Embedder
from memory_api.memories.index.scopes import ScopeAddress, ScopeArea
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.search.inactive import rank_inactive
from memory_api.memories.search.query import (
    MEMORY_COLUMNS,
    EmbeddedQuery,
    Found,
    SearchColumns,
    SearchFilters,
    SearchHit,
    SearchOptions,
    SearchResults,
    build_call,
)
from memory_api.text.terms import query_terms


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
    return await search_columns_in_session(session, query, addresses, MEMORY_COLUMNS, **options)


async def search_columns_in_session(
    session: AsyncSession,
    query: EmbeddedQuery,
    addresses: Sequence[ScopeAddress | ScopeArea],
    columns: SearchColumns[Found],
    **options: Unpack[SearchOptions],
) -> list[SearchHit[Found]]:
    """`search_in_session` with the columns that the caller needs."""
    await session.flush()
    driver = await asyncpg_connection(session)
    tenant_id = current_tenant_id(session)
    return (await _call(driver, tenant_id, query, addresses, columns, options)).hits


async def _call(
    driver: asyncpg.Connection[Any],
    tenant_id: UUID,
    query: EmbeddedQuery,
    addresses: Sequence[ScopeAddress | ScopeArea],
    columns: SearchColumns[Found],
    options: SearchOptions,
) -> SearchResults[Found]:
    if not addresses:
        return SearchResults([])
    rows = await driver.fetch(columns.call, tenant_id, *build_call(query, addresses, options))
    return columns.parse_rows(rows)


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
    search = search_text(
        sessions, embedder, tenant_id, query_text, addresses, MEMORY_COLUMNS, options
    )
    async with search as (results, _connection):
        return results


@asynccontextmanager
async def search_text(
    sessions: Sessions,
    embedder: Embedder,
    tenant_id: UUID,
    query_text: str,
    addresses: Sequence[ScopeAddress | ScopeArea],
    columns: SearchColumns[Found],
    options: SearchOptions,
) -> AsyncGenerator[tuple[SearchResults[Found], asyncpg.Connection[Any]]]:
    """`search_memories` with the columns that the caller needs, and the connection of the search
    for a further statement, which costs less than to open it again. See `Sessions.raw_connection`.
    """
    async with AsyncExitStack() as stack:
        with observe_duration(SEARCH_DURATION), span("search"):
            query = await embed_query(embedder, query_text)
            driver = await stack.enter_async_context(sessions.raw_connection())
            filters = options.get("filters") or SearchFilters()
            is_indexed = filters.status is MemoryStatus.ACTIVE or query.is_empty
            listing = SearchOptions(
                filters=filters,
                top_k=MAX_INACTIVE_ROWS,
                with_header=options.get("with_header", False),
            )
            sent = options if is_indexed else listing
            results = await _call(driver, tenant_id, query, addresses, columns, sent)
            if not is_indexed and results.hits:
                await stack.aclose()  # embedding may take long
                texts = [hit.memory.searchable_text for hit in results.hits]
                cosines = (await embedder.embed_documents(texts) @ query.vector).astype(np.float64)
                ranked = rank_inactive(results.hits, cosines, query, options)
                results = SearchResults(ranked, results.header)
                driver = await stack.enter_async_context(sessions.raw_connection())
        yield results, driver
