"""Replies that a run has paid for. A retried run whose request is the same gets the stored reply.

A reply is stored in the transaction that records its call, and deleted when its run ends, or by
upkeep after a day.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import cast
from uuid import UUID

import structlog
from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import Sessions, current_tenant_id
from memory_api.core.secret_redaction import redact
from memory_api.core.statements import (
    StatementRow,
    compile_statement,
    fetch_rows,
    load_statement,
)
from memory_api.llm.port import LLM, FinishReason, LLMReply, LLMRequest, LLMWrapper, TokenUsage
from memory_api.llm.tables import LLMReplyRow

log = structlog.get_logger(__name__)


_FENCE_SUFFIX = re.compile(r"(</?[a-z_-]{1,40}-)[0-9a-f]{16}>")
"""The random part of a fence (`untrusted_text.fence_text`). It differs in each attempt."""

_OF_RUN = (LLMReplyRow.tenant_id == bindparam("tenant"), LLMReplyRow.run_id == bindparam("run"))
_GET = compile_statement(
    select(LLMReplyRow).where(*_OF_RUN, LLMReplyRow.request_hash == bindparam("hash"))
)
_INSERT = compile_statement(
    insert(LLMReplyRow).on_conflict_do_nothing(),
    *(column.name for column in LLMReplyRow.__table__.columns if column.name != "created_at"),
)
_LOCK_RUN = load_statement("runs/queries.sql", "lock_unfinished_run")
_DELETE = compile_statement(delete(LLMReplyRow).where(*_OF_RUN))


def request_hash(request: LLMRequest) -> str:
    """The SHA-256 of what is sent to the model, without the model's name and the random parts of
    fences.
    """
    content = [
        [[m.role, _FENCE_SUFFIX.sub(r"\1>", m.content)] for m in request.messages],
        request.schema.schema if request.schema else None,
        request.max_tokens,
        request.temperature,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


async def get_stored_reply(session: AsyncSession, run_id: UUID, hash_: str) -> LLMReply | None:
    parameters = {"tenant": current_tenant_id(session), "run": run_id, "hash": hash_}
    rows = await fetch_rows(session, _GET, parameters)
    return _to_reply(rows[0]) if rows else None


async def insert_stored_reply(session: AsyncSession, request: LLMRequest, reply: LLMReply) -> None:
    """Store a reply for the run of its request. Does nothing for a request without a run, and for a
    run that has ended meanwhile, as by the erasure of its trace: the reply may quote it.
    """
    if request.run_id is None:
        return
    run = {"tenant": current_tenant_id(session), "run": request.run_id}
    if not await fetch_rows(session, _LOCK_RUN, run):
        return
    row = {
        "tenant_id": current_tenant_id(session),
        "run_id": request.run_id,
        "request_hash": request_hash(request),
        "provider": reply.provider,
        "model": reply.model,
        "text": redact(reply.text).text.replace("\0", "\N{REPLACEMENT CHARACTER}"),
        "finish_reason": reply.finish_reason,
        "input_tokens": reply.usage.input_tokens,
        "output_tokens": reply.usage.output_tokens,
        "cached_tokens": reply.usage.cached_input_tokens,
        "cache_write_tokens": reply.usage.cache_write_tokens,
        "latency_ms": reply.latency_ms,
        "request_id": reply.request_id,
    }
    await fetch_rows(session, _INSERT, row)


async def delete_stored_replies(session: AsyncSession, run_id: UUID) -> None:
    await fetch_rows(session, _DELETE, {"tenant": current_tenant_id(session), "run": run_id})


class StoredReplyLLM(LLMWrapper):
    """Returns the stored reply of a request that its run has made before. The outermost wrapper: a
    stored reply needs no free call, no provider and no budget.
    """

    def __init__(self, inner: LLM, sessions: Sessions) -> None:
        super().__init__(inner)
        self._sessions = sessions

    async def complete(self, request: LLMRequest) -> LLMReply:
        if request.run_id is not None and request.tenant_id is not None:
            async with self._sessions.for_tenant(request.tenant_id) as session:
                reply = await get_stored_reply(session, request.run_id, request_hash(request))
            if reply is not None:
                log.info("stored_reply_used", run_id=str(request.run_id), purpose=request.purpose)
                return reply
        return await self.inner.complete(request)


def _to_reply(row: StatementRow) -> LLMReply:
    return LLMReply(
        text=row.text,
        model=row.model,
        provider=row.provider,
        usage=TokenUsage(
            row.input_tokens, row.output_tokens, row.cached_tokens, row.cache_write_tokens
        ),
        finish_reason=cast(FinishReason, row.finish_reason),
        latency_ms=row.latency_ms,
        request_id=row.request_id,
    )
