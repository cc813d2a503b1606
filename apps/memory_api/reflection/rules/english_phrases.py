"""Parts of English sentences: lists, counts, quotations and changed arguments."""

from __future__ import annotations

from collections.abc import Sequence

from memory_api.trace_analysis.arguments import (
    BODY_CHANGE,
    QUOTES_CHANGE,
    WHITESPACE_CHANGE,
    ArgumentChange,
    is_named,
)
from memory_api.trace_analysis.failures import is_exit_code

_ENDS = (".", "!", "?", "…", ".”", "!”", "?”", "。", "！", "？")


def counted(n: int, noun: str, plural: str = "") -> str:
    """`1 call`, `2 calls`."""
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b, and c`."""
    if len(items) < 3:
        return f" {last} ".join(items)
    return f"{', '.join(items[:-1])}, {last} {items[-1]}"


def code(text: str) -> str:
    """A call, a tool or an argument in backticks; in quotation marks if it contains a backtick."""
    return f"“{text}”" if "`" in text else f"`{text}`"


def codes(items: Sequence[str], last: str = "and") -> str:
    return listed([code(item) for item in items], last)


def quoted(items: Sequence[str], last: str = "and") -> str:
    return listed([f"“{item}”" for item in items], last)


def quote(text: str) -> str:
    """A quotation that ends the sentence; a mark that is not in the text stays outside."""
    return f"“{text}”" if text.endswith(_ENDS) else f"“{text}”."


def failed(message: str, verb: str = "failed") -> str:
    """A failure and its message; an exit code is no quotation."""
    return f"{verb} with {message}." if is_exit_code(message) else f"{verb}: {quote(message)}"


def stop(text: str) -> str:
    """The text with a mark at its end."""
    return text if text.endswith(_ENDS) else text + "."


def changed(c: ArgumentChange) -> str:
    """What changed from one call to the next, as part of a sentence."""
    if c.name == WHITESPACE_CHANGE:
        return "only whitespace changed"
    if c.name == QUOTES_CHANGE:
        added = (c.after or "")[:1] in "\"'"
        return f"the quotation marks around the argument were {'added' if added else 'removed'}"
    if c.name == BODY_CHANGE:
        return "the text below the first line changed"
    if not is_named(c):
        return _reworded(c)
    if c.before is None:
        return f"{code(c.name)} was added with the value {code(c.after or '')}"
    if c.after is None:
        return f"{code(c.name)} was removed (it was {code(c.before)})"
    return f"{code(c.name)} changed from {code(c.before)} to {code(c.after)}"


def _reworded(c: ArgumentChange) -> str:
    if max(len(c.before or ""), len(c.after or "")) > 60:
        return "the argument was rewritten"
    if not c.after:
        return f"“{c.before}” was removed"
    if not c.before:
        return f"“{c.after}” was added"
    return f"“{c.before}” became “{c.after}”"


def differs(c: ArgumentChange) -> str:
    """The two values of an argument in a failed (before) and a successful call (after)."""
    if not is_named(c):
        return changed(c)
    if c.before is None:
        return f"{code(c.name)} is present only in the successful call ({code(c.after or '')})"
    if c.after is None:
        return f"{code(c.name)} is present only in the failed call ({code(c.before)})"
    before, after = code(c.before), code(c.after)
    return f"{code(c.name)} is {before} in the failed call and {after} in the successful call"


def expected(c: ArgumentChange) -> str:
    """An argument of a call (before) and its expected value (after)."""
    if c.before is None:
        return f"no {code(c.name)} (expected {code(c.after or '')})"
    if c.after is None:
        return f"{code(f'{c.name}={c.before}')} (not expected)"
    return f"{code(f'{c.name}={c.before}')} (expected {code(c.after)})"
