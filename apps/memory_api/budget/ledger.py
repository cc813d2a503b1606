"""The durable ledger: every attempt is a row of `llm_calls`, committed by itself at once."""

from __future__ import annotations

from typing import Any

from apps.memory_api.budget.queries import record_call
from apps.memory_api.core.db import Sessions
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.redaction import redact
from apps.memory_api.llm.ledger import Attempt
from apps.memory_api.llm.port import Usage


class DatabaseLedger:
    """Writes into the tenant's own rows; whatever becomes of the work, the record stays."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def record(self, attempt: Attempt) -> None:
        """Keep it. Raises ValueError for a call in nobody's name."""
        if attempt.tenant_id is None:
            raise ValueError("a call of a model needs the tenant in whose name it is made")
        async with self._sessions.tenant(attempt.tenant_id) as session:
            await record_call(session, _row(attempt))


def _row(attempt: Attempt) -> dict[str, Any]:
    # A provider may quote what it was sent, and with it a key.
    detail = redact(attempt.detail).text[:2000] if attempt.detail else None
    return {
        "tenant_id": attempt.tenant_id,
        "id": new_id(),
        "run_id": attempt.run_id,
        "provider": attempt.provider,
        "model": attempt.model,
        "purpose": attempt.purpose,
        "prompt_hash": attempt.prompt_hash,
        "status": attempt.status,
        "error": attempt.error,
        "detail": detail,
        "finish_reason": attempt.finish_reason,
        "usd": attempt.usd,
        "latency_ms": attempt.latency_ms,
        "request_id": attempt.request_id,
        "created_at": attempt.started_at,
        **_tokens(attempt.usage),
    }


def _tokens(usage: Usage | None) -> dict[str, int | None]:
    return {
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cached_tokens": usage.cached_input_tokens if usage else None,
        "cache_write_tokens": usage.cache_write_tokens if usage else None,
    }
