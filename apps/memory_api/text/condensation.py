"""Shorten program output: tracebacks to their last lines, separators and progress displays to
nothing, and as a second step series of similar lines to their first and last line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TRACEBACK_START = re.compile(r"^\s*Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r"^\s+(?:File \"|at |\^|~|\S)")
_TRACEBACK_TAIL_LINES = 4
"""Lines of frames before the exception that are kept: the two innermost frames."""
_MIN_SERIES = 6
"""Similar lines in a row that are folded."""
_SERIES_WORD = re.compile(r"^\s*([A-Za-z][\w:!.\-]{3,})(?=\s)")
_HAS_WORD = re.compile(r"[^\W_]{2}|[^\W\d_]")
_MAX_DECORATION = 8
"""Lines without a letter or number that are longer than this are separators or pictures."""


def condense_output(text: str) -> str:
    """The text without what a reader skips. Nothing that it states is lost."""
    lines = text.split("\n")
    if len(lines) <= _TRACEBACK_TAIL_LINES and "\r" not in text:
        return text
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    lines = list(_shorten_tracebacks(lines))
    lines = [line for line in lines if not _is_decoration(line)]
    return "\n".join(_drop_blank_repeats(lines))


def fold_series(text: str) -> str:
    """The text with one remark in place of similar lines, such as 60 lines `Collecting …`. What the
    lines in the middle say is lost.
    """
    return "\n".join(_fold_series(text.split("\n")))


def _is_decoration(line: str) -> bool:
    stripped = line.strip()
    return len(stripped) > _MAX_DECORATION and not _HAS_WORD.search(stripped)


def _drop_blank_repeats(lines: Sequence[str]) -> list[str]:
    return [
        line
        for index, line in enumerate(lines)
        if line.strip() or index == 0 or lines[index - 1].strip()
    ]


def _shorten_tracebacks(lines: Sequence[str]) -> Iterator[str]:
    """Each traceback with its first line, its innermost frames and the exception."""
    index = 0
    while index < len(lines):
        yield lines[index]
        index += 1
        if not _TRACEBACK_START.match(lines[index - 1]):
            continue
        end = index
        while end < len(lines) and _FRAME.match(lines[end]):
            end += 1
        frames = lines[index:end]
        if len(frames) > _TRACEBACK_TAIL_LINES + 1:
            yield f"  [… {len(frames) - _TRACEBACK_TAIL_LINES} lines of frames …]"
            frames = frames[-_TRACEBACK_TAIL_LINES:]
        yield from frames
        index = end


def _fold_series(lines: Sequence[str]) -> Iterator[str]:
    """Series of lines that start with the same word, such as `Collecting …` or `npm WARN …`."""
    index = 0
    while index < len(lines):
        word = _series_word(lines[index])
        end = index + 1
        while word and end < len(lines) and _series_word(lines[end]) == word:
            end += 1
        if word and end - index >= _MIN_SERIES:
            yield lines[index]
            yield f"[… {end - index - 2} similar lines that start with {word!r} …]"
            yield lines[end - 1]
        else:
            yield from lines[index:end]
        index = end


def _series_word(line: str) -> str:
    match = _SERIES_WORD.match(line)
    return match[1] if match else ""
