"""The table of stored replies."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Now, OptStr, Str, TenantId


class LLMReplyRow(Base):
    """A reply of a model to a request of a run. `text` is redacted."""

    __tablename__ = "llm_replies"
    __table_args__ = (Index("llm_replies_created_at_idx", "tenant_id", "created_at"),)

    tenant_id: Mapped[TenantId]
    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    request_hash: Mapped[Str] = mapped_column(primary_key=True)
    provider: Mapped[Str]
    model: Mapped[Str]
    text: Mapped[Str]
    finish_reason: Mapped[Str]
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    cache_write_tokens: Mapped[int]
    latency_ms: Mapped[int]
    request_id: Mapped[OptStr]
    created_at: Mapped[Now]
