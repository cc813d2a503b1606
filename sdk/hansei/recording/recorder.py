"""Collects the lines of recorded traces in memory, writes them to the spool and sends them, in two
background threads. The agent's own threads only append to a list.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from contextlib import suppress

from hansei.client import Hansei
from hansei.credentials import resolve_credentials
from hansei.errors import HanseiError
from hansei.recording.delivery import Delivery
from hansei.recording.spool import DiskSpool, Spool, open_spool, spool_folder

log = logging.getLogger("hansei")

WRITE_INTERVAL_SECONDS = 0.2
"""Lines wait this long before they are written. `kill -9` loses no more than these."""
MAX_BUFFER_CHARACTERS = 4 * 1024 * 1024
"""If the buffer is larger, the thread that records an event writes it."""
SEND_TIMEOUT_SECONDS = 30.0
RENDER_TIMEOUT_SECONDS = 5.0
JOIN_SECONDS = 0.5
EXIT_SECONDS = 2.0
"""A process that ends waits this long for its traces. The next one sends the rest."""


class Recorder:
    """Records for one service and API key. Safe to share between threads."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        spool_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """`spool_dir` defaults to HANSEI_SPOOL_DIR, then to ~/.local/state/hansei/spool. Raises
        `NotConfigured`.
        """
        found = resolve_credentials(url, api_key)
        self.client = Hansei(found.url, found.api_key, timeout=RENDER_TIMEOUT_SECONDS)
        """Renders playbooks, in the thread of the agent."""
        self._sender = Hansei(found.url, found.api_key, timeout=SEND_TIMEOUT_SECONDS)
        self._spool: Spool = open_spool(spool_folder(found.url, found.api_key, spool_dir))
        self._delivery = Delivery(self._sender, self._spool)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pending: list[tuple[str, str, bool]] = []
        self._size = 0
        self._has_warned = False
        self.lost_events = 0
        """Events that found no place in memory or on the disk."""
        self._write_lock = threading.Lock()
        self._write_wanted = threading.Event()
        self._send_wanted = threading.Event()
        self._send_wanted.set()  # what other processes left
        self._is_urgent = threading.Event()  # ends the pause after a failure
        self._state = threading.Condition()
        self._flushes_wanted = self._flushes_done = 0
        self._is_closed = False
        self._threads = [
            threading.Thread(target=target, name=f"hansei-{name}", daemon=True)
            for name, target in (("write", self._run_writer), ("send", self._run_sender))
        ]
        for thread in self._threads:
            thread.start()

    def add(self, name: str, line: str, *, is_last: bool = False) -> None:
        """Record a line of a trace. `is_last` ends the trace."""
        if os.getpid() != self._pid:
            return  # a forked child: the trace belongs to its parent
        with self._lock:
            was_empty = not self._pending
            self._pending.append((name, line, is_last))
            self._size += len(line)
            is_full = self._size > MAX_BUFFER_CHARACTERS
        if is_full:
            self._write()
        elif was_empty:
            self._write_wanted.set()

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all traces that have ended are sent. Returns False after `timeout` seconds."""
        self._write()
        deadline = time.monotonic() + timeout
        with self._state:
            self._flushes_wanted += 1
            number = self._flushes_wanted
            self._send_wanted.set()
            self._is_urgent.set()
            while self._flushes_done < number:
                seconds = deadline - time.monotonic()
                if seconds <= 0 or not self._state.wait(seconds):
                    return False
        return True

    def close(self, timeout: float = EXIT_SECONDS) -> bool:
        """Flush, and stop the threads. What is not sent remains in the spool."""
        is_sent = self.flush(timeout)
        with self._state:
            self._is_closed = True
        for event in (self._write_wanted, self._send_wanted, self._is_urgent):
            event.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)  # longer only if the service does not respond
        self.client.close()
        if isinstance(self._spool, DiskSpool):
            with suppress(OSError):
                self._spool.close()
        return is_sent

    def _run_writer(self) -> None:
        while True:
            self._write_wanted.wait()
            if self._is_closed:
                return
            self._write_wanted.clear()
            time.sleep(WRITE_INTERVAL_SECONDS)  # collect more lines
            self._write()

    def _write(self) -> None:
        """Write the buffer to the spool. What cannot be written returns to the buffer."""
        with self._write_lock:
            with self._lock:
                pending, self._pending, self._size = self._pending, [], 0
            texts: dict[str, list[str]] = {}
            for name, line, _ in pending:
                texts.setdefault(name, []).append(line)
            ended = {name for name, _, is_last in pending if is_last}
            failed = {
                name
                for name, lines in texts.items()
                if not self._store(name, "".join(lines), has_ended=name in ended)
            }
            if failed:
                self._return_to_buffer([entry for entry in pending if entry[0] in failed])
        if ended - failed:
            self._send_wanted.set()

    def _store(self, name: str, text: str, *, has_ended: bool) -> bool:
        try:
            self._spool.append(name, text)
            if has_ended:
                self._spool.finish(name)
        except OSError as error:
            if not self._has_warned:
                log.warning("Agent runs cannot be written to the spool: %s", error)
            self._has_warned = True
            return False
        return True

    def _return_to_buffer(self, entries: list[tuple[str, str, bool]]) -> None:
        """Put lines back for another attempt, if the buffer has room; otherwise they are lost."""
        size = sum(len(line) for _, line, _ in entries)
        if size > MAX_BUFFER_CHARACTERS:
            self.lost_events += len(entries)
            log.warning("%d events of agent runs are lost.", self.lost_events)
            return
        with self._lock:
            self._pending[:0] = entries
            self._size += size
        self._write_wanted.set()

    def _run_sender(self) -> None:
        seconds: float | None = None
        while True:
            if seconds is None:
                self._send_wanted.wait()
            else:
                self._is_urgent.wait(seconds)
            if self._is_closed:
                self._sender.close()
                return
            self._send_wanted.clear()
            self._is_urgent.clear()
            number = self._flushes_wanted
            seconds = self._send()
            if seconds is None:
                with self._state:
                    self._flushes_done = number
                    self._state.notify_all()

    def _send(self) -> float | None:
        try:
            return self._delivery.send_ready()
        except Exception as error:  # the thread must go on: later traces may be sent
            log.exception("Traces are not sent.", exc_info=error)
            return SEND_TIMEOUT_SECONDS


_default: Recorder | None = None
_has_warned = False
_default_lock = threading.Lock()


def default_recorder() -> Recorder | None:
    """The recorder of this process. None if no service is configured, which is logged once."""
    global _default, _has_warned
    if _default is not None:
        return _default
    with _default_lock:
        if _default is None and not _has_warned:
            try:
                _default = Recorder()
                atexit.register(_default.close)
            except HanseiError as error:
                _has_warned = True
                log.warning("Agent runs are not recorded. %s", error.detail)
        return _default


def flush(timeout: float = 10.0) -> bool:
    """Wait until the recorded traces are sent. Returns False after `timeout` seconds."""
    return True if _default is None else _default.flush(timeout)


def _reset_after_fork() -> None:
    """A forked child has none of the threads. It opens a recorder of its own."""
    global _default, _default_lock, _has_warned
    _default, _default_lock, _has_warned = None, threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
