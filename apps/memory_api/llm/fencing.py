"""Text that came from outside is data in a prompt: fenced so that it cannot end its own fence, and
cut to a budget.

Fencing tells the model where the data is; it does not make a gullible model safe. What a model
answers is validated as if it came from the author of the trace.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

_WIDE = re.compile("[\u2e80-\U0010ffff]+")
_MIDDLE = re.compile("[\x80-\u2e7f]+")
_ERROR_LINE = re.compile(
    r"(?:errors?|exceptions?)\b"
    r"|\b(?:traceback|fatal|failed|failure|panic|timeout|timed out|denied)\b"
    r"|エラー|例外|失敗|タイムアウト|拒否",
    re.IGNORECASE,
)
_MARKER_TOKENS = 16  # what one marker may cost, its line break included
_MIN_BUDGET = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a trace that is kept or left out as one (an event, a line). Errors are kept
    first."""

    text: str
    error: bool = False


def new_delimiter() -> str:
    """16 hex digits nobody can guess."""
    return secrets.token_hex(8)


def fence(text: str, *, label: str = "data", delimiter: Callable[[], str] = new_delimiter) -> str:
    """The text between `<label-…>` and `</label-…>` with a delimiter that does not occur in it."""
    mark = delimiter()
    while mark in text:
        mark = delimiter()
    return f"<{label}-{mark}>\n{text}\n</{label}-{mark}>"


def estimate_tokens(text: str) -> int:
    """About how many tokens a model sees: a quarter of ASCII characters, half of other alphabets',
    all of CJK's (and of emoji). Meant to be a little too high."""
    if text.isascii():
        return -(-len(text) // 4)
    wide = sum(map(len, _WIDE.findall(text)))
    middle = sum(map(len, _MIDDLE.findall(text)))
    quarters = len(text) - wide - middle + 2 * middle + 4 * wide
    return -(-quarters // 4)


def cut_text(text: str, budget: int) -> str:
    """A text cut to `budget` tokens, line by line; see `cut`."""
    if estimate_tokens(text) <= budget:
        return text
    return cut(
        [Piece(line, error=bool(_ERROR_LINE.search(line))) for line in text.split("\n")], budget
    )


def cut(pieces: Sequence[Piece], budget: int) -> str:
    """The pieces, a line break between them, in at most `budget` estimated tokens (64 or more).

    What does not fit is left out in the middle: the head, the tail and the errors stay (different
    ones before repeated ones), each gap is marked with how much is missing, and a piece too long
    for its share is cut inside. Raises ValueError for a budget under 64.
    """
    if budget < _MIN_BUDGET:
        raise ValueError(f"a budget of {budget} tokens is too small; {_MIN_BUDGET} is the least")
    if _cost(pieces) <= budget:
        return "\n".join(piece.text for piece in pieces)
    share = max(_MARKER_TOKENS * 2, budget // 4)
    short = [Piece(_squeeze(piece.text, share), piece.error) for piece in pieces]
    return _join(pieces, short, _choose(short, budget))


def _cost(pieces: Iterable[Piece]) -> int:
    return sum(estimate_tokens(piece.text + "\n") for piece in pieces)


def _choose(pieces: Sequence[Piece], budget: int) -> list[int]:
    """Which pieces stay: four tenths for errors, three for the head, the rest for the tail, then
    again for whatever is left over. Every error that stands alone may cost a marker more."""
    costs = [estimate_tokens(piece.text + "\n") for piece in pieces]
    left = budget - _MARKER_TOKENS
    chosen: set[int] = set()

    def take(indices: Iterable[int], allowance: int, *, extra: int = 0, stop: bool = True) -> None:
        nonlocal left
        allowance = min(allowance, left)
        for index in indices:
            cost = costs[index] + extra
            if index in chosen:
                continue
            if cost > allowance:
                if stop:
                    return
                continue
            chosen.add(index)
            allowance -= cost
            left -= cost

    forward, backward = range(len(pieces)), range(len(pieces) - 1, -1, -1)
    take(_errors_first(pieces), budget * 4 // 10, extra=_MARKER_TOKENS, stop=False)
    take(forward, budget * 3 // 10)
    take(backward, left)
    take(forward, left)
    return sorted(chosen)


def _errors_first(pieces: Sequence[Piece]) -> list[int]:
    """Indices of errors: the first of each text in order, then the repetitions."""
    seen: set[str] = set()
    first: list[int] = []
    again: list[int] = []
    for index, piece in enumerate(pieces):
        if piece.error:
            (again if piece.text in seen else first).append(index)
            seen.add(piece.text)
    return first + again


def _join(originals: Sequence[Piece], short: Sequence[Piece], kept: Sequence[int]) -> str:
    parts: list[str] = []
    expected = 0
    for index in [*kept, len(originals)]:
        if index > expected:
            parts.append(_marker(originals[expected:index]))
        if index < len(originals):
            parts.append(short[index].text)
        expected = index + 1
    return "\n".join(parts)


def _marker(missing: Sequence[Piece]) -> str:
    return f"[… {len(missing)} left out, about {_cost(missing)} tokens …]"


def _squeeze(text: str, budget: int) -> str:
    """Head and tail of one long text in `budget` tokens, with a marker between."""
    if estimate_tokens(text) <= budget:
        return text
    room = budget - _MARKER_TOKENS
    head = _fit(text, room * 6 // 10)
    tail = _fit(text[::-1], room - estimate_tokens(head))[::-1]
    missing = len(text) - len(head) - len(tail)
    return f"{head}[… {missing} characters left out …]{tail}"


def _fit(text: str, budget: int) -> str:
    """The longest start of the text within the budget, to within a few characters."""
    low, high = 0, min(len(text), budget * 4)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= budget:
            low = middle
        else:
            high = middle - 1
    return text[:low]
