"""What the command line says and where: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hansei.client import Hansei
from hansei.credentials import CredentialsWarning
from hansei.errors import HanseiError, ServerError, TimedOut, Unauthorized, Unreachable

out = Console(highlight=False, markup=False)
err = Console(stderr=True, highlight=False, markup=False)
wide = Console(highlight=False, markup=False, width=10_000)
"""For tables that go to a pipe: a cell there is one line."""

# Traces come from strangers: an escape sequence in one must not move the cursor of whoever reads
# it, nor may marks of direction reorder the line.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def connect() -> Hansei:
    """A client of the service that the environment or the stored credentials name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CredentialsWarning)
        client = Hansei()
    for warning in caught:
        say(f"warning: {warning.message}")
    return client


def say(text: str) -> None:
    """A message for people, on stderr."""
    err.print(Text(readable(text)), soft_wrap=not err.is_terminal)


def show(text: str = "", *, indent: int = 0, style: str = "") -> None:
    """A paragraph of the result: wrapped for a terminal, one line as it is for a pipe."""
    paragraph = Text(readable(text), style=style)
    wrapped = paragraph.wrap(out, out.width - indent) if out.is_terminal else paragraph.split()
    for line in wrapped or [paragraph]:
        line.rstrip()
        line.pad_left(indent)
        out.print(line, soft_wrap=True)


def show_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table, as wide as the terminal; whole lines for a pipe."""
    table = Table(*head, box=None, pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*(Text(readable(cell)) for cell in row))
    (out if out.is_terminal else wide).print(table)


def show_parts(parts: Mapping[str, float | str | None]) -> None:
    """What a score was made of, one a line."""
    for name, value in parts.items():
        told = f"{value:.4g}" if isinstance(value, float) else value
        show(f"{name} {'-' if told is None else told}", indent=2, style="cyan")


def show_text(text: str) -> None:
    """A document, as it is for a pipe."""
    sys.stdout.write(readable(text) if out.is_terminal else text)
    sys.stdout.flush()


def show_json(value: object) -> None:
    """The result for programs: one JSON document on one line."""
    json.dump(value, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def complain(error: HanseiError) -> None:
    """What went wrong, and what to do about it."""
    say(f"error: {error.detail}")
    for wrong in error.errors[1:]:  # the first is in the detail
        say(f"  {wrong.get('field')}: {wrong.get('message')}")
    hint = _hint(error)
    if hint:
        say(hint)


def readable(text: str) -> str:
    """`text` without what would drive the terminal."""
    return _UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


def cut(text: str, length: int) -> str:
    """At most `length` characters, with a mark where more was."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def one_line(text: str, length: int) -> str:
    return cut(" ".join(text.split()), length)


def count(number: int, noun: str, many: str = "") -> str:
    """`1 trace`, `2 traces`, `3 memories`."""
    return f"{number} {noun}" if number == 1 else f"{number} {many or noun + 's'}"


def ago(moment: str) -> str:
    """How long ago an ISO time was."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


def cause(error: object) -> str:
    """Why a run failed or a line was refused, in one line."""
    if not isinstance(error, Mapping):
        return str(error) if error else "unknown"
    said: Mapping[str, Any] = error  # pyright: ignore[reportUnknownVariableType]
    named = ("detail", "message", "error_message", "code")
    text = next((str(said[name]) for name in named if said.get(name)), "unknown")
    return f"{said['field']}: {text}" if said.get("field", "body") != "body" else text


def _hint(error: HanseiError) -> str | None:
    if isinstance(error, TimedOut):
        return "It may be busy. Try again, or look at its log."
    if isinstance(error, Unreachable):
        return "Is `hansei up` running? HANSEI_URL says where else to look."
    if isinstance(error, Unauthorized):
        return "HANSEI_API_KEY, or what `hansei up` stored, is not a key of this service."
    if isinstance(error, ServerError) and error.request_id:
        return f"The service's log says more about request {error.request_id}."
    return None
