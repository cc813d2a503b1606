"""Notices that the disk of the database is full: PostgreSQL answers statements with SQLSTATE 53100.

A client cannot ask PostgreSQL for free disk space, so this is the only sign that an API process
has of a database on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine

from memory_api.core.db_errors import sqlstate
from memory_api.core.metrics import DISK_FULL

DISK_FULL_SQLSTATE = "53100"


@dataclass
class DiskState:
    """Whether a statement of this process failed because of a full disk, and no write since then
    proved that there is space again.
    """

    is_full: bool = False


DISK_STATE = DiskState()
"""A process has one database."""


def record_full_disk(engine: AsyncEngine) -> None:
    """Set `DISK_STATE` when a statement of `engine` fails because of a full disk."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def check(context: ExceptionContext) -> None:  # pyright: ignore[reportUnusedFunction]
        record_if_disk_full(context.original_exception)


def record_if_disk_full(error: BaseException) -> None:
    """Set `DISK_STATE` if a statement failed because of a full disk."""
    if sqlstate(error) == DISK_FULL_SQLSTATE:
        DISK_STATE.is_full = True
        DISK_FULL.inc()
