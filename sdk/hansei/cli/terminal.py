"""Output of the command line: results on stdout, messages and errors on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import floor, log10
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import hansei
from hansei._model import to_json
from hansei.errors import (
    APIConnectionError,
    APITimeoutError,
    AuthenticationError,
    HanseiError,
    InternalServerError,
    NotFoundError,
)
from hansei.hidden_text import HIDDEN

if TYPE_CHECKING:
    from hansei.client import Hansei

stdout = Console(highlight=False, markup=False)
stderr = Console(stderr=True, highlight=False, markup=False)
unwrapped = Console(highlight=False, markup=False, width=10_000)
"""For tables in a pipe: each row is one line."""

MAX_TEXT_LENGTH = 600
"""Characters of a memory, a passage or a lesson in the results of a command."""

# Traces are untrusted: escape sequences must not control the terminal, and bidirectional marks
# must not reorder a line.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def open_client(*, timeout: float | None = None) -> Hansei:
    """A client with the URL and key of the environment or of the credentials file."""
    # The client is imported only now, because `hansei --help` needs none.
    return hansei.Hansei() if timeout is None else hansei.Hansei(timeout=timeout)


def progress_bar(*columns: ProgressColumn) -> Progress:
    """On stderr: the description of a task, a bar, `columns`, and the time. It leaves the CPU to
    the service.
    """
    return Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        console=stderr,
        refresh_per_second=4,
    )


def print_message(text: str) -> None:
    """Print a message on stderr."""
    stderr.print(Text(sanitize(text)), soft_wrap=not stderr.is_terminal)


def print_text(text: str = "", *, indent: int = 0, style: str = "") -> None:
    """Print a paragraph of the result. Wrapped on a terminal, one line in a pipe."""
    paragraph = Text(sanitize(text), style=style)
    if stdout.is_terminal:
        lines = paragraph.wrap(stdout, stdout.width - indent)
    else:
        lines = paragraph.split()
    for line in lines or [paragraph]:
        line.rstrip()
        line.pad_left(indent)
        stdout.print(line, soft_wrap=True)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. In a pipe, rows are not wrapped."""
    table = Table(*header, box=None, pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*(Text(sanitize(cell)) for cell in row))
    (stdout if stdout.is_terminal else unwrapped).print(table)


class Hit(Protocol):
    """A result of a search."""

    @property
    def combined_score(self) -> float: ...
    @property
    def match(self) -> str | None: ...


H = TypeVar("H", bound=Hit)


def print_hits(hits: Sequence[H], print_hit: Callable[[H, list[str]], object]) -> None:
    """`print_hit` gets each result with what its line begins with: rank, score and match."""
    if not hits:
        print_message("No results.")
    for rank, hit in enumerate(hits, start=1):
        facts = [f"{rank}. {hit.combined_score:.3f}"]
        if hit.match is not None:
            facts.append("no match" if hit.match == "none" else f"{hit.match} match")
        if rank > 1:
            print_text()
        print_hit(hit, facts)


def print_fields(fields: Mapping[str, str | None], *, style: str = "") -> None:
    """A line for each field that is not empty."""
    for name, value in fields.items():
        if value:
            print_text(f"{name}: {value}", style=style)


def print_score_terms(terms: Mapping[str, float | str | None]) -> None:
    for name, value in terms.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print_text(f"{name} {'-' if shown is None else shown}", indent=2, style="cyan")


def print_line(text: str) -> None:
    """Print text without wrapping, and end the line."""
    print_document(f"{text}\n")


def print_document(text: str) -> None:
    """Print a document without wrapping."""
    sys.stdout.write(sanitize(text) if stdout.is_terminal else text)
    sys.stdout.flush()


def print_json(value: object) -> None:
    """Print one JSON document on one line. Characters that control a terminal are escaped."""
    text = json.dumps(to_json(value), ensure_ascii=False)
    sys.stdout.write(_UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")
    sys.stdout.flush()


def print_error(error: HanseiError) -> None:
    print_message(f"error: {error.detail}")
    for field_error in error.errors[1:]:  # the first one is in the detail
        print_message(f"  {field_error.get('field')}: {field_error.get('message')}")
    hint = _error_hint(error)
    if hint:
        print_message(hint)


def _not_found_hint(detail: str) -> str | None:
    """The command that lists what exists."""
    if found := re.search(r": playbooks/([^/]+?)(/.*)?\.$", detail):
        name = found[1]
        if detail.startswith("Bullet "):
            return f"Run `hansei playbook show {name} --status all` to see its bullets."
        if detail.startswith("Version "):
            return f"Run `hansei playbook versions {name}` to see its versions."
    if found or detail.startswith("Playbook "):
        return "Run `hansei playbook list` to see the playbooks."
    return None


def sanitize(text: str) -> str:
    """Replaces characters that would control the terminal, and hidden ones."""
    shown = _UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))
    return HIDDEN.sub(lambda match: "\ufffd" * len(match[0]), shown)


def truncate(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def truncate_line(text: str, length: int) -> str:
    return truncate(" ".join(text.split()), length)


def format_count(number: int, noun: str, plural: str = "") -> str:
    """`1 trace`, `2 traces`, `3 memories`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def format_usd(amount: float) -> str:
    """`$80.00`, `$0.0521`, `$0.000012`: at least four decimals and two digits below a dollar."""
    if not amount or abs(amount) >= 1:
        return f"${amount:.2f}"
    return f"${amount:.{max(4, 1 - floor(log10(abs(amount))))}f}"


def format_age(time: str) -> str:
    """The age of an ISO time, for example `5 min ago`."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"


def format_error(error: object) -> str:
    """The error of a run or of a rejected trace in one line."""
    if not isinstance(error, Mapping):
        return str(error) if error else "unknown"
    fields: Mapping[str, Any] = error  # pyright: ignore[reportUnknownVariableType]
    names = ("detail", "message", "error_message", "code")
    text = next((str(fields[name]) for name in names if fields.get(name)), "unknown")
    return f"{fields['field']}: {text}" if fields.get("field", "body") != "body" else text


def _error_hint(error: HanseiError) -> str | None:
    if isinstance(error, APITimeoutError):
        return "The service may be busy. Retry, or check its log."
    if isinstance(error, APIConnectionError):
        return "Check that `hansei up` is running, or set HANSEI_URL."
    if isinstance(error, AuthenticationError) and "HANSEI_API_KEY" not in error.detail:
        return "Set HANSEI_API_KEY to a valid key, or run `hansei up` to create one."
    if isinstance(error, NotFoundError):
        return _not_found_hint(error.detail)
    if isinstance(error, InternalServerError) and error.request_id:
        return f"Look for request {error.request_id} in the log of the service."
    return None
