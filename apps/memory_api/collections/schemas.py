"""Collections and documents on the wire."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field

from memory_api.core.schemas import (
    Name,
    NotBlank,
    Page,
    ProjectId,
    ResponseModel,
    TenantRequest,
    UnitFloat,
    UtcDatetime,
    is_playbook_name,
    with_examples,
)
from memory_api.memories.schemas import Match

DEFAULT_CHUNK_TOKENS = 256


def _validate_collection_name(name: str) -> str:
    if not is_playbook_name(name):
        raise ValueError(
            "must be a collection name: printable, without slashes and surrounding spaces"
        )
    return name


CollectionName = Annotated[Name, AfterValidator(_validate_collection_name)]
ChunkTokens = Annotated[
    int,
    Field(
        ge=64,
        le=2048,
        description="Size of a chunk in estimated tokens: a token is about four letters of English "
        "or one character of Japanese.",
    ),
]


class CreateCollectionRequest(TenantRequest):
    """A new collection."""

    name: CollectionName
    project_id: ProjectId = None
    description: str = Field(
        default="", max_length=2_000, description="What it contains. A planner chooses by it."
    )
    chunk_tokens: ChunkTokens = DEFAULT_CHUNK_TOKENS


class RechunkCollectionRequest(TenantRequest):
    """A new size of the chunks."""

    chunk_tokens: ChunkTokens = DEFAULT_CHUNK_TOKENS


COLLECTION: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa06",
    "project_id": "default",
    "name": "handbook",
    "description": "Rules for refunds and returns",
    "chunk_tokens": 256,
    "state": "active",
    "document_count": 3,
    "chunk_count": 41,
    "created_at": "2026-11-21T09:00:00Z",
}


class Collection(ResponseModel):
    """A named set of documents."""

    model_config = with_examples(COLLECTION)

    id: UUID
    project_id: str
    name: str
    description: str
    chunk_tokens: int = Field(description="Size of a chunk in estimated tokens.")
    state: str = Field(description="`active`, or `deleting` until its last chunk is removed.")
    document_count: int
    chunk_count: int = Field(description="Chunks that searches find.")
    created_at: UtcDatetime


class CollectionPage(Page[Collection]):
    """One page of collections, newest first."""


DOCUMENT: dict[str, Any] = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa07",
    "source": "refunds.md",
    "title": "Refunds",
    "media_type": "text/markdown",
    "byte_count": 18210,
    "state": "running",
    "error": None,
    "progress": 0.5,
    "page_count": 1,
    "chunk_count": 20,
    "run_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa03",
    "created_at": "2026-11-21T09:00:00Z",
    "updated_at": "2026-11-21T09:00:01Z",
}


class Document(ResponseModel):
    """A document and how far it is loaded."""

    model_config = with_examples(DOCUMENT)

    id: UUID
    source: str = Field(description="Identifies the document in its collection.")
    title: str | None
    media_type: str
    byte_count: int
    state: str = Field(
        description="`queued`, `running`, `done`, `failed` (see `error`) or `deleting`."
    )
    error: Any = Field(
        description="Why it failed: `code` (`empty`, `no_text`, `encrypted`, `broken_pdf`, "
        "`not_text`, `unknown_encoding`, `too_many_pages`, `too_much_text`, `too_slow` or "
        "`not_loaded`, after which its run can be retried) and `message`."
    )
    progress: float = Field(description="Share of its chunks that are stored, 0 to 1.")
    page_count: int | None
    chunk_count: int | None
    run_id: UUID | None = Field(description="The run that loads it.")
    created_at: UtcDatetime
    updated_at: UtcDatetime


class DocumentPage(Page[Document]):
    """One page of documents, newest first."""


class RechunkedCollection(ResponseModel):
    """What a change of the chunk size started."""

    model_config = with_examples({"chunk_tokens": 512, "document_count": 3})

    chunk_tokens: int
    document_count: int = Field(description="Documents that are split again.")


class SearchCollectionRequest(TenantRequest):
    """A search in the chunks of a collection."""

    query_text: Annotated[str, NotBlank] = Field(min_length=1, max_length=10_000)
    top_k: int = Field(default=5, ge=1, le=100, description="Maximum number of results.")
    min_score: UnitFloat = Field(
        default=0.0, description="Leave out chunks whose cosine similarity is lower."
    )
    min_match: Match = Field(
        default="none", description="`strong`: only chunks that fit the query well."
    )


class ChunkHit(ResponseModel):
    """A chunk that was found, and where it is in its document."""

    memory_id: UUID
    document_id: UUID
    source: str
    title: str | None = Field(description="Title of the document and the headings above the chunk.")
    page: int = Field(description="Page of the document, from 1.")
    start: int = Field(description="Offset in the text of the page, in characters.")
    end: int
    content: str = Field(
        description="The text from `start` to `end`. Inside a table, its heading comes first."
    )
    cosine: float = Field(description="Cosine similarity, -1 to 1. Comparable between searches.")
    combined_score: float = Field(description="0 to 1. Means the same for every query.")
    match: Match | None


class SearchCollectionResponse(ResponseModel):
    """Chunks, best first."""

    model_config = with_examples(
        {
            "results": [
                {
                    "memory_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa05",
                    "document_id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa07",
                    "source": "refunds.md",
                    "title": "Refunds › Pending orders",
                    "page": 1,
                    "start": 120,
                    "end": 170,
                    "content": "A pending order cannot be refunded. Cancel it.",
                    "cosine": 0.71,
                    "combined_score": 0.73,
                    "match": "strong",
                }
            ]
        }
    )

    results: list[ChunkHit]
