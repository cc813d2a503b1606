"""What an HTTP failure of a provider means. Both SDKs report the same facts; this is the one table
that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from apps.memory_api.llm.errors import (
    LLMAuth,
    LLMBadRequest,
    LLMError,
    LLMQuota,
    LLMRateLimited,
    LLMRefused,
    LLMServerError,
    LLMTimeout,
)

_BY_STATUS: dict[int, type[LLMError]] = {
    401: LLMAuth,
    402: LLMQuota,
    403: LLMAuth,
    408: LLMTimeout,
    409: LLMServerError,
    429: LLMRateLimited,
}
# Both vendors answer "no money left" with the status of something else: OpenAI 429, Anthropic 400.
_QUOTA_KINDS = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
_QUOTA_WORDS = ("credit balance is too low",)
_FILTER_KINDS = frozenset({"content_filter", "content_policy_violation"})


def from_status(
    status: int,
    *,
    message: str,
    kinds: frozenset[str] = frozenset(),
    headers: Mapping[str, str],
    request_id: str | None = None,
) -> LLMError:
    """The error for an HTTP status of 300 or more. `kinds` are the machine-readable words of the
    body (its type and code), `headers` case-insensitive."""
    return _error_class(status, message, kinds)(
        f"{status}: {message}"[:1000],
        retry_after=retry_after(headers),
        provider_status=status,
        request_id=request_id,
    )


def _error_class(status: int, message: str, kinds: frozenset[str]) -> type[LLMError]:
    if kinds & _QUOTA_KINDS or any(words in message.lower() for words in _QUOTA_WORDS):
        return LLMQuota
    if kinds & _FILTER_KINDS:
        return LLMRefused
    if status >= 500:
        return LLMServerError
    return _BY_STATUS.get(status, LLMBadRequest)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait as the headers say (`retry-after-ms`, or `retry-after` in seconds or as a
    date); None unsaid."""
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _number(value: str | None) -> float | None:
    """A finite number of at least 0, else None."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
