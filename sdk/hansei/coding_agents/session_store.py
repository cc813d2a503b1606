"""What was sent of each session, and what waits to be sent, in files of the user.

    $XDG_STATE_HOME/hansei/coding-agents/      (HANSEI_STATE_DIR replaces the first two parts)
        sessions/<hash of the path>.json       how far a session file was read, and its retrieval
        spool/<range>.json                     one range of messages that waits to be sent
        spool/<range>.rejected                 one that the service refused
        accounts/<ID>/credentials.json         the URL and key that hooks were installed with

A range of lines has one ID. The service stores an ID once, so a range that is sent again after a
crash counts once. Transcripts can contain secrets: all files have mode 0600.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from hansei._file_limit import limited_lines
from hansei._model import Json
from hansei.coding_agents.hook_settings import write_atomically
from hansei.errors import BadRequestError, ConfigurationError
from hansei.private_folder import require_private, state_folder
from hansei.session_files import read_session_file

if sys.platform != "win32":
    import fcntl
else:  # two hooks at once may send a range twice, which the service detects
    fcntl = None

MAX_RANGE_BYTES = 8 * 1024 * 1024
"""A longer range becomes several. The service accepts 32 MB."""
MAX_SPOOL_BYTES = 500 * 1024 * 1024
"""Beyond this, ranges stay in their session file and are read when the spool has room."""
PRIVATE = 0o600


@dataclass
class SessionState:
    """`main` and `sidechain` are the bytes of the file that were read for messages of the agent and
    of its sub-agents. `shown` are bullets that are in the context of the agent.
    """

    main: int = 0
    sidechain: int = 0
    retrieval_id: str | None = None
    shown: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class SessionRange:
    """Messages to send. `account` is the `account_id` of the URL and key that they belong to."""

    external_id: str
    session_id: str | None
    messages: list[Json]
    playbook: str
    account: str
    project_id: str | None = None
    retrieval_id: str | None = None


class SessionStore:
    """Raises `ConfigurationError` for a folder that another user could have prepared: its accounts
    say where transcripts are sent.
    """

    def __init__(self, directory: Path | None = None) -> None:
        given = os.environ.get("HANSEI_STATE_DIR")
        base = Path(given) if given else state_folder()
        self.directory = directory or base / "coding-agents"
        self.spool = self.directory / "spool"
        self.sessions = self.directory / "sessions"
        self.accounts = self.directory / "accounts"
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            require_private(self.directory)
        except PermissionError as error:
            raise ConfigurationError(f"{error.strerror} Set another HANSEI_STATE_DIR.") from error
        for folder in (self.spool, self.sessions):
            folder.mkdir(exist_ok=True, mode=0o700)

    @contextmanager
    def lock(self, name: str, *, wait: bool = True) -> Generator[bool]:
        """Yields whether this process holds the lock. It is free when its process has ended."""
        with (self.directory / f"{name}.lock").open("a") as file:
            if fcntl is None:
                yield True
                return
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True

    def load(self, session_file: Path) -> SessionState:
        """A damaged state is as good as none: its ranges have the IDs that they had before."""
        try:
            value = json.loads(self._state_path(session_file).read_text(encoding="utf-8"))
            known = {name: value[name] for name in asdict(SessionState()) if name in value}
            return SessionState(**known)
        except (OSError, ValueError, TypeError):
            return SessionState()

    def save(self, session_file: Path, state: SessionState) -> None:
        text = json.dumps({"path": str(session_file), **asdict(state)})
        write_atomically(self._state_path(session_file), text, PRIVATE)

    def _state_path(self, session_file: Path) -> Path:
        return self.sessions / f"{_hash(str(session_file.resolve()))}.json"

    def add_to_spool(self, messages: SessionRange) -> None:
        name = f"{_hash(messages.external_id)}.json"
        write_atomically(self.spool / name, json.dumps(asdict(messages)), PRIVATE)

    def has_room(self) -> bool:
        return sum(path.stat().st_size for path in self.waiting()) < MAX_SPOOL_BYTES

    def waiting(self) -> list[Path]:
        """The spooled ranges, oldest first."""
        return sorted(self.spool.glob("*.json"), key=lambda path: path.stat().st_mtime)

    def rejected(self) -> list[Path]:
        return sorted(self.spool.glob("*.rejected"))

    def load_range(self, path: Path) -> SessionRange | None:
        """None if the file is damaged or was sent by another process."""
        try:
            return SessionRange(**cast(Json, json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError):
            return None

    def note(self, text: str | None) -> None:
        """Remember the last error for `hansei hooks status`; None forgets it."""
        path = self.directory / "last_error"
        if text is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, text + "\n", PRIVATE)

    def last_error(self) -> str | None:
        try:
            return (self.directory / "last_error").read_text(encoding="utf-8").strip() or None
        except OSError:
            return None


@dataclass(frozen=True)
class Unsent:
    """One range of a session file, and the state of the session after it."""

    external_id: str
    session_id: str | None
    messages: list[Json]
    main: int
    sidechain: int


def read_unsent(
    session_file: Path, state: SessionState, *, sidechain_only: bool = False
) -> Iterator[Unsent]:
    """The messages that were added since `state`, in ranges of at most `MAX_RANGE_BYTES`.

    With `sidechain_only`, those of sub-agents. A half-written last line stays for the next time. A
    file that has become shorter is read from its beginning. Raises `OSError`, and
    `BadRequestError` for a line that is too long.
    """
    size = session_file.stat().st_size
    main, side = (
        (0, 0) if max(state.main, state.sidechain) > size else (state.main, state.sidechain)
    )
    kind = "sidechain" if sidechain_only else "all"
    lines: list[bytes] = []
    first = end = side if sidechain_only else min(main, side)
    collected = 0
    with session_file.open("rb") as source:
        source.seek(first)
        for line in limited_lines(source):
            if not line.endswith(b"\n") and not _is_json(line):
                break
            start, end = end, end + len(line)
            is_side = _is_sidechain(line)
            wanted = is_side if sidechain_only else start >= (side if is_side else main)
            if wanted:
                lines.append(line)
                collected += len(line)
            if collected >= MAX_RANGE_BYTES:
                yield _to_unsent(session_file, kind, lines, (first, end), main)
                lines, collected, first = [], 0, end
    if end > first:
        yield _to_unsent(session_file, kind, lines, (first, end), main)


def _to_unsent(
    session_file: Path, kind: str, lines: list[bytes], span: tuple[int, int], main: int
) -> Unsent:
    messages: list[Json] = []
    session_id = None
    try:
        session = read_session_file(b"".join(lines))
        messages, session_id = session.messages, session.session_id
    except BadRequestError:  # no message in these lines
        pass
    identity = f"{session_id or session_file.stem}:{session_file.name}:{kind}:{span[0]}-{span[1]}"
    end = span[1]
    return Unsent(
        f"claude-code:{_hash(identity)}",
        session_id,
        messages,
        main if kind == "sidechain" else end,
        end,
    )


def _is_sidechain(line: bytes) -> bool:
    return b'"isSidechain":true' in line or b'"isSidechain": true' in line


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]
