"""Fence untrusted text in a prompt and shorten it to a token budget.

A fence shows the model where the data is, and the data cannot close it. This does not prevent all
prompt injection, so a model's answer is validated as untrusted input.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memory_api.text.terms import estimate_tokens

_ERROR_LINE = re.compile(
    r"(?:errors?|exceptions?)\b"
    r"|\b(?:traceback|fatal|failed|failure|panic|timeout|timed out|denied)\b"
    r"|エラー|例外|失敗|タイムアウト|拒否",
    re.IGNORECASE,
)
_MARKER_TOKENS = 16  # upper bound of a marker's tokens, line break included
_MIN_BUDGET_TOKENS = 64
_MIN_PIECE_TOKENS = 2 * _MARKER_TOKENS
_CITATION_CONTEXT = 60
"""Characters on both sides of a citation that a shortened piece contains."""


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """A part of a text, such as an event or a line, that `fit_pieces` keeps or omits as a whole.

    A piece with `citations`, texts that occur in it, is never omitted, and never shortened there,
    as long as all such pieces fit with 32 tokens each. Pieces with `is_error` are preferred.
    """

    text: str
    is_error: bool = False
    citations: tuple[str, ...] = ()


def new_delimiter() -> str:
    """Generate 16 random hex digits."""
    return secrets.token_hex(8)


def fence_text(
    text: str, *, label: str = "data", delimiter: Callable[[], str] = new_delimiter
) -> str:
    """Put the text between `<label-…>` and `</label-…>`, with a delimiter that is not in it."""
    suffix = delimiter()
    while suffix in text:
        suffix = delimiter()
    return f"<{label}-{suffix}>\n{text}\n</{label}-{suffix}>"


def distribute_budget(
    budget: int, sizes: Mapping[str, int], weights: Mapping[str, int]
) -> dict[str, int]:
    """Divide a token budget among parts of these sizes in proportion to their weights.

    No part gets more than its size: what it does not use goes to the others. So all parts get their
    size if the budget is at least the sum.
    """
    granted: dict[str, int] = dict.fromkeys(sizes, 0)
    open_names: list[str] = [name for name, size in sizes.items() if size > 0]
    while open_names:
        total = sum(weights[name] for name in open_names)
        left = budget - sum(granted.values())
        satisfied = [n for n in open_names if sizes[n] * total <= left * weights[n]]
        if not satisfied:
            granted.update({n: max(0, left) * weights[n] // total for n in open_names})
            return granted
        granted.update({name: sizes[name] for name in satisfied})
        open_names = [name for name in open_names if name not in satisfied]
    return granted


def fit_text(text: str, budget: int) -> str:
    """Shorten a text to `budget` estimated tokens, line by line; see `fit_pieces`."""
    if estimate_tokens(text) <= budget:
        return text
    return fit_pieces(
        [PromptPiece(line, is_error=bool(_ERROR_LINE.search(line))) for line in text.split("\n")],
        budget,
    )


def fit_pieces(pieces: Sequence[PromptPiece], budget: int) -> str:
    """Join the pieces by line breaks, in at most `budget` estimated tokens.

    If they do not fit, keeps pieces with citations, the start, the end and the errors, distinct
    errors before repeated ones. A marker with the omitted size replaces each gap. A piece that is
    too long is shortened in its middle. Raises ValueError for a budget under 64.
    """
    if budget < _MIN_BUDGET_TOKENS:
        raise ValueError(f"`budget` must be at least {_MIN_BUDGET_TOKENS} tokens, not {budget}.")
    if _count_tokens(pieces) <= budget:
        return "\n".join(piece.text for piece in pieces)
    max_piece_tokens = max(_MIN_PIECE_TOKENS, budget // 4)
    cited_count = sum(1 for piece in pieces if piece.citations)
    max_cited_tokens = max(_MIN_PIECE_TOKENS, budget // 2 // max(1, cited_count) - _MARKER_TOKENS)
    shortened = [
        replace(
            piece,
            text=_shorten_around(
                piece.text, min(max_piece_tokens, max_cited_tokens), piece.citations
            )
            if piece.citations
            else _shorten(piece.text, max_piece_tokens),
        )
        for piece in pieces
    ]
    return _join_chosen(pieces, shortened, _choose_pieces(shortened, budget))


def _count_tokens(pieces: Iterable[PromptPiece]) -> int:
    return sum(estimate_tokens(piece.text + "\n") for piece in pieces)


def _choose_pieces(pieces: Sequence[PromptPiece], budget: int) -> list[int]:
    """Choose the pieces to keep: all with citations, errors for 40 % of the budget, the start for
    30 %, the end for the rest, then the start again for what is left. A piece in the middle may
    need an additional marker.
    """
    sizes = [estimate_tokens(piece.text + "\n") for piece in pieces]
    remaining = budget - _MARKER_TOKENS
    chosen: set[int] = set()

    def choose(indices: Iterable[int], share: int, *, extra: int = 0, stop: bool = True) -> None:
        """Choose pieces up to `share` tokens. `stop` ends at the first that does not fit."""
        nonlocal remaining
        share = min(share, remaining)
        for index in indices:
            size = sizes[index] + extra
            if index in chosen:
                continue
            if size > share:
                if stop:
                    return
                continue
            chosen.add(index)
            share -= size
            remaining -= size

    forward, backward = range(len(pieces)), range(len(pieces) - 1, -1, -1)
    cited = [index for index, piece in enumerate(pieces) if piece.citations]
    choose(cited, remaining, extra=_MARKER_TOKENS, stop=False)
    choose(_error_indices(pieces), budget * 4 // 10, extra=_MARKER_TOKENS, stop=False)
    choose(forward, budget * 3 // 10)
    choose(backward, remaining)
    choose(forward, remaining)
    return sorted(chosen)


def _error_indices(pieces: Sequence[PromptPiece]) -> list[int]:
    """The indices of the errors: first all distinct texts, then the repetitions."""
    seen: set[str] = set()
    distinct: list[int] = []
    repeated: list[int] = []
    for index, piece in enumerate(pieces):
        if piece.is_error:
            (repeated if piece.text in seen else distinct).append(index)
            seen.add(piece.text)
    return distinct + repeated


def _join_chosen(
    pieces: Sequence[PromptPiece], shortened: Sequence[PromptPiece], chosen: Sequence[int]
) -> str:
    parts: list[str] = []
    expected = 0
    for index in [*chosen, len(pieces)]:
        if index > expected:
            parts.append(_omission_marker(pieces[expected:index]))
        if index < len(pieces):
            parts.append(shortened[index].text)
        expected = index + 1
    return "\n".join(parts)


def _omission_marker(omitted: Sequence[PromptPiece]) -> str:
    return f"[… {len(omitted)} omitted, about {_count_tokens(omitted)} tokens …]"


def _shorten(text: str, budget: int) -> str:
    """Keep the start and the end of a text, with a marker between them."""
    if estimate_tokens(text) <= budget:
        return text
    budget -= _MARKER_TOKENS
    head = _truncate(text, budget * 6 // 10)
    tail = _truncate(text[::-1], budget - estimate_tokens(head))[::-1]
    omitted_count = len(text) - len(head) - len(tail)
    return f"{head}[… {omitted_count} characters omitted …]{tail}"


def _shorten_around(text: str, budget: int, citations: Sequence[str]) -> str:
    """`_shorten`, but with the surroundings of each citation, as far as the budget allows."""
    short = _shorten(text, budget)
    if all(citation in short for citation in citations):
        return short
    windows: list[tuple[int, int]] = []
    for start in sorted(text.index(citation) for citation in citations if citation in text):
        length = max(len(c) for c in citations if text.startswith(c, start))
        begin = max(0, start - _CITATION_CONTEXT)
        end = min(len(text), start + length + _CITATION_CONTEXT)
        if windows and begin <= windows[-1][1]:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((begin, end))
    excerpts = " […] ".join(text[begin:end] for begin, end in windows)
    rest = budget - estimate_tokens(excerpts) - 2 * _MARKER_TOKENS
    head = _truncate(text[: windows[0][0]], max(0, rest)) if windows else ""
    joined = f"{head}[… {len(text) - len(head)} characters, here shortened …] {excerpts}"
    if estimate_tokens(joined) <= budget:
        return joined
    marks = "".join(f"[… {citation} …]" for citation in citations)
    return _truncate(marks, budget)


def _truncate(text: str, budget: int) -> str:
    """The longest start of the text within the budget, to within a few characters."""
    low, high = 0, min(len(text), budget * 4)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= budget:
            low = middle
        else:
            high = middle - 1
    return text[:low]
