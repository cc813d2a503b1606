"""Session files: what a coding agent keeps of a session, one message a line (Claude Code), or a
document that holds the messages.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

from hansei.answers import Json
from hansei.errors import BadRequest

LISTS = ("messages", "loglines")
"""Where a document keeps its messages."""
LONGEST_ID = 128

# Inside a text a quote is escaped, so these are keys, of whatever object.
_TELLING = re.compile(
    rb'"(events)"\s*:|"message"\s*:\s*\{|"(?:messages|loglines)"\s*:\s*\[|"role"\s*:\s*"\w+"'
)


@dataclass(frozen=True)
class Session:
    """`messages` as the file has them: the service knows which of them were said."""

    messages: list[Json]
    session_id: str | None


def is_session(head: bytes) -> bool:
    """Whether a file that begins so holds messages, and not the events of a trace."""
    found = _TELLING.search(head)
    return found is not None and found[1] is None


def read_session(text: bytes) -> Session:
    """Raises `BadRequest` for what is no JSON."""
    found = [cast(Json, item) for item in _items(text) if isinstance(item, dict)]
    named = (item.get("sessionId") or item.get("session_id") for item in found)
    session_id = next((name for name in named if isinstance(name, str)), None)
    return Session(found, session_id[:LONGEST_ID] if session_id else None)


def _items(text: bytes) -> list[Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return [_line(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if isinstance(document, list):
        return cast("list[Any]", document)
    inner = next((document[name] for name in LISTS if name in document), [document])
    return cast("list[Any]", inner)


def _line(number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadRequest(f"Line {number} is not JSON: {error}.", code="malformed_json") from None
