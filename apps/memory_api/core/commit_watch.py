"""Notes whether a request has committed something, so that a failed one is not executed twice."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class CommitWatch:
    """Whether a transaction of a tenant was committed, or may have been when it broke."""

    may_have_committed: bool = False


_commit_watch: ContextVar[CommitWatch | None] = ContextVar("commit_watch", default=None)


@contextmanager
def watch_commits() -> Generator[CommitWatch]:
    """Notes the commits of writing transactions in this context."""
    watch = CommitWatch()
    token = _commit_watch.set(watch)
    try:
        yield watch
    finally:
        _commit_watch.reset(token)


def note_commit() -> None:
    if (watch := _commit_watch.get()) is not None:
        watch.may_have_committed = True
