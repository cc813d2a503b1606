"""Lowers the priority of PostgreSQL's processes that execute statements of logins, if it runs on
this machine and this process may do so. It has no setting for that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from memory_api.analytics.queries import LoginSession

LOWEST_PRIORITY = 19
"""Unix niceness. Such a process gets a hundredth of the CPU time that others also want."""


def lower_priority(sessions: Iterable[LoginSession]) -> None:
    for session in sessions:
        with suppress(psutil.Error, OSError):  # it has ended, or belongs to another user
            process = psutil.Process(session.pid)
            if process.nice() < LOWEST_PRIORITY and _is_process_of(session, process):
                process.nice(LOWEST_PRIORITY)
                # Linux may schedule sessions against each other. Each process of PostgreSQL has a
                # session of its own; the priority of a shared one would slow down others.
                if os.getsid(session.pid) == session.pid:
                    Path(f"/proc/{session.pid}/autogroup").write_text(str(LOWEST_PRIORITY))


def _is_process_of(session: LoginSession, process: psutil.Process) -> bool:
    """Whether the process is not one of another machine's that has the same ID."""
    title = " ".join(process.cmdline()).split()
    if title[:1] != ["postgres:"]:
        return False
    if session.leader_pid is not None:
        return title[1:] == f"parallel worker for PID {session.leader_pid}".split()
    return session.role_name in title
