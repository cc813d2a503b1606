"""Converts a provider's HTTP error to an `LLMError`, in the same way for all SDKs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from apps.memory_api.llm.errors import (
    LLMAuthenticationFailed,
    LLMBadRequest,
    LLMError,
    LLMQuotaExceeded,
    LLMRateLimited,
    LLMRefused,
    LLMServerError,
    LLMTimeout,
)

_BY_STATUS: dict[int, type[LLMError]] = {
    401: LLMAuthenticationFailed,
    402: LLMQuotaExceeded,
    403: LLMAuthenticationFailed,
    408: LLMTimeout,
    409: LLMServerError,
    429: LLMRateLimited,
}
# For an exhausted quota, OpenAI returns 429 and Anthropic 400.
_QUOTA_KINDS = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
_QUOTA_WORDS = ("credit balance is too low",)
_FILTER_KINDS = frozenset({"content_filter", "content_policy_violation"})


def error_from_status(
    status: int,
    *,
    message: str,
    kinds: frozenset[str] = frozenset(),
    headers: Mapping[str, str],
    request_id: str | None = None,
) -> LLMError:
    """Return the error for an HTTP status of 300 or more. `kinds` are the type and the code in the
    body. `headers` must be case-insensitive.
    """
    return _error_class(status, message, kinds)(
        f"{status}: {message}"[:1000],
        retry_after=parse_retry_after(headers),
        provider_status=status,
        request_id=request_id,
    )


def _error_class(status: int, message: str, kinds: frozenset[str]) -> type[LLMError]:
    if kinds & _QUOTA_KINDS or any(words in message.lower() for words in _QUOTA_WORDS):
        return LLMQuotaExceeded
    if kinds & _FILTER_KINDS:
        return LLMRefused
    if status >= 500:
        return LLMServerError
    return _BY_STATUS.get(status, LLMBadRequest)


def parse_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` (seconds or a date). None without a
    valid header.
    """
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        retry_at = parsedate_to_datetime(value)
    except ValueError:
        return None
    if retry_at.tzinfo is None:
        retry_at = retry_at.replace(tzinfo=UTC)
    return max(0.0, (retry_at - (now or datetime.now(UTC))).total_seconds())


def _number(value: str | None) -> float | None:
    """Parse a finite number of at least 0; None for anything else."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
