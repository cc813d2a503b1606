"""The category of an error message, by the texts of operating systems, HTTP and programming
languages. Only messages of errors that are reported as such are classified.

Sources: errno messages (POSIX.1-2017), HTTP status codes (RFC 9110), exception names of Python and
JavaScript.
"""

from __future__ import annotations

import re

from memory_api.traces.schemas import ErrorCategory

_PATTERNS: tuple[tuple[ErrorCategory, str], ...] = (
    (ErrorCategory.TIMEOUT_ERROR, r"tim(?:ed|e)[ _-]?out|deadline exceeded|タイムアウト"),
    (
        ErrorCategory.PERMISSION_ERROR,
        r"permission denied|\bforbidden\b|unauthori[sz]ed|access denied"
        r"|operation not permitted|\b40[13]\b",
    ),
    (
        ErrorCategory.NETWORK_ERROR,
        r"rate.?limit|too ?many ?requests|\b429\b|connection (?:refused|reset|error|aborted|closed)"
        r"|ECONN|getaddrinfo|name resolution|unreachable|\b50[234]\b|bad gateway",
    ),
    (
        ErrorCategory.VALIDATION_ERROR,
        r"validation error|syntax ?error|IndentationError|\binvalid\b|missing required"
        r"|is required",
    ),
    (ErrorCategory.LLM_ERROR, r"context length|content.?filter|max(?:imum)? tokens"),
)
_CATEGORIES = [(c, re.compile(pattern, re.IGNORECASE)) for c, pattern in _PATTERNS]
_SAMPLE_CHARACTERS = 900


def classify_error(message: str) -> ErrorCategory | None:
    """The category whose text occurs first in the message; None if none does."""
    size = _SAMPLE_CHARACTERS
    sample = message if len(message) <= 2 * size else f"{message[:size]}\n{message[-size:]}"
    found = [
        (match.start(), number, category)
        for number, (category, pattern) in enumerate(_CATEGORIES)
        if (match := pattern.search(sample))
    ]
    return min(found)[2] if found else None
