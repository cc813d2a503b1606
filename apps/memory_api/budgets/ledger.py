"""The ledger of model calls: every attempt is a row of `llm_calls`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from memory_api.core.secret_redaction import redact
from memory_api.llm.port import FinishReason, TokenUsage


@dataclass(frozen=True, slots=True)
class LLMCallRecord:
    """One HTTP exchange with a model. `usage` is None without a reply. `usd` is None without a
    reply and for an unknown price. `error` is an `LLMError.code`, "cancelled", or None.
    """

    provider: str
    model: str
    purpose: str
    prompt_hash: str | None
    tenant_id: UUID | None
    run_id: UUID | None
    started_at: datetime
    latency_ms: int
    status: Literal["ok", "error"]
    project_id: str | None = None
    usage: TokenUsage | None = None
    usd: Decimal | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    detail: str | None = None
    request_id: str | None = None


def to_row(attempt: LLMCallRecord, call_id: UUID) -> dict[str, Any]:
    """A row of `llm_calls`."""
    # An error message of a provider may quote the request, which may contain a secret.
    detail = redact(attempt.detail).text[:2000] if attempt.detail else None
    usage = attempt.usage
    return {
        "tenant_id": attempt.tenant_id,
        "id": call_id,
        "run_id": attempt.run_id,
        "project_id": attempt.project_id,
        "provider": attempt.provider,
        "model": attempt.model,
        "purpose": attempt.purpose,
        "prompt_hash": attempt.prompt_hash,
        "status": attempt.status,
        "error": attempt.error,
        "error_detail": detail,
        "finish_reason": attempt.finish_reason,
        "cost_usd": attempt.usd,
        "latency_ms": attempt.latency_ms,
        "request_id": attempt.request_id,
        "created_at": attempt.started_at,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cached_tokens": usage.cached_input_tokens if usage else None,
        "cache_write_tokens": usage.cache_write_tokens if usage else None,
    }
