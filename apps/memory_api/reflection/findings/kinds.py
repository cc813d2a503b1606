"""Kinds of failure by the words of the message, English and Japanese, each with its error
category."""

from __future__ import annotations

import re

from apps.memory_api.traces.schemas import ErrorCategory

_C = ErrorCategory
_KINDS: tuple[tuple[str, ErrorCategory, str], ...] = (
    ("timeout", _C.TIMEOUT_ERROR, r"tim(?:ed|e)[ _-]?out|deadline exceeded|タイムアウト|時間切れ"),
    (
        "rate_limit",
        _C.NETWORK_ERROR,
        r"rate.?limit|too many requests|\b429\b|quota exceeded|レート制限",
    ),
    (
        "permission",
        _C.PERMISSION_ERROR,
        r"permission denied|forbidden|unauthori[sz]ed|not (?:allowed|permitted|authori[sz]ed)"
        r"|access denied"
        r"|\b40[13]\b|policy violation|権限|許可されて",
    ),
    (
        "network",
        _C.NETWORK_ERROR,
        r"connection (?:refused|reset|error|aborted|closed)|ECONN|getaddrinfo|name resolution"
        r"|unreachable"
        r"|\b50[234]\b|bad gateway|接続でき|ネットワーク",
    ),
    (
        "syntax",
        _C.VALIDATION_ERROR,
        r"syntax ?error|IndentationError|invalid syntax|unexpected (?:token|indent)|構文",
    ),
    (
        "shortage",
        _C.VALIDATION_ERROR,
        r"does not add up|not enough|insufficient|exceeds? (?:the )?(?:balance|limit)|残高|不足",
    ),
    (
        "missing",
        _C.TOOL_ERROR,
        r"not found|could not find|cannot find|no such file|no (?:results?|matches)"
        r"|found 0 matches|cannot open"
        r"|does not exist|doesn't exist|\b404\b|ModuleNotFoundError|見つかりません|存在しません"
        r"|該当.{0,6}ありません",
    ),
    (
        "unavailable",
        _C.TOOL_ERROR,
        r"not available|unavailable|fully booked|満席|満室|予約.{0,16}ませんでした|取れません",
    ),
    (
        "invalid",
        _C.VALIDATION_ERROR,
        r"validation error|invalid|must be|missing required|is required|TypeError|ValueError"
        r"|KeyError"
        r"|cannot be|should be a|無効|不正な",
    ),
    ("model", _C.LLM_ERROR, r"context length|content.?filter|max(?:imum)? tokens|model overloaded"),
)
_COMPILED = tuple(
    (kind, category, re.compile(pattern, re.IGNORECASE)) for kind, category, pattern in _KINDS
)


def kind_of(message: str) -> tuple[str, ErrorCategory]:
    """Kind and category of a failure message; ("failed", tool_error) when its words say no more."""
    sample = message[:900] + "\n" + message[-500:] if len(message) > 1_400 else message
    best: tuple[int, str, ErrorCategory] | None = None
    for rank, (kind, category, pattern) in enumerate(_COMPILED):
        hit = pattern.search(sample)
        if hit and (best is None or (rank > 1 and hit.start() + 400 < best[0])):
            best = (hit.start(), kind, category)
    return (best[1], best[2]) if best else ("failed", ErrorCategory.TOOL_ERROR)
