"""Collects the lines of recorded traces in memory, writes them to the spool and sends them, in two
background threads. The agent's own threads only append to a list.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from weakref import WeakSet

from hansei.client import Hansei
from hansei.credentials import resolve_credentials
from hansei.errors import HanseiError
from hansei.recording.advice import Advice
from hansei.recording.configuration import (
    Mask,
    RecordingOptions,
    is_enabled,
    options_from_environment,
)
from hansei.recording.delivery import Delivery
from hansei.recording.spool import Spool, open_spool, spool_folder

log = logging.getLogger("hansei")

WRITE_INTERVAL_SECONDS = 0.2
"""Lines of a run that goes on wait this long before they are written. `kill -9` loses no more."""
MAX_BUFFER_CHARACTERS = 4 * 1024 * 1024
"""If the buffer is larger, the thread that records an event writes it."""
SEND_TIMEOUT_SECONDS = 30.0
JOIN_SECONDS = 0.5
EXIT_SECONDS = 2.0
"""A process that ends waits this long for its traces. The next one sends the rest."""


class Recorder:
    """Records for one service and API key. Safe to share between threads.

    A forked child may go on using it. There, the recorder starts again with a spool, threads and
    connections of the child; traces that began in the parent belong to the parent.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        spool_dir: str | os.PathLike[str] | None = None,
        sample_rate: float | None = None,
        mask: Mask | None = None,
    ) -> None:
        """`spool_dir` defaults to HANSEI_SPOOL_DIR, then to ~/.local/state/hansei/spool.
        `sample_rate` is the share of agent runs that is recorded, by default HANSEI_SAMPLE_RATE or
        1. `mask` gets each text before it is recorded and returns what is recorded instead. Raises
        `ConfigurationError`.
        """
        found = resolve_credentials(url, api_key)
        self._url, self._api_key = found.url, found.api_key
        self._spool_folder = spool_folder(found.url, found.api_key, spool_dir)
        chosen = options_from_environment()
        self.options = RecordingOptions(
            chosen.sample_rate if sample_rate is None else sample_rate, mask
        )
        self._has_warned = False
        self.lost_events = 0
        """Events that found no place in memory or on the disk."""
        self._start()
        _recorders.add(self)

    def _start(self) -> None:
        """Open what belongs to this process."""
        self.advice = Advice()
        timeout = self.advice.max_wait
        self.client = Hansei(self._url, self._api_key, timeout=timeout, max_retries=0)
        """Renders playbooks, within the time that `advice` allows."""
        self._sender = Hansei(self._url, self._api_key, timeout=SEND_TIMEOUT_SECONDS)
        self._spool: Spool = open_spool(self._spool_folder)
        self._delivery = Delivery(self._sender, self._spool)
        self._lock = threading.Lock()
        self._pending: list[tuple[str, str, bool]] = []
        self._size = 0
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
        self._is_started = True
        _close_when_process_ends()

    def leave_parent(self) -> None:
        """Called in a forked child: the threads and the buffer are the parent's."""
        if self._is_started and not self._is_closed:
            self._is_started = False
            self._spool.leave()

    def _require_started(self) -> None:
        if not self._is_started:
            with _start_lock:
                if not self._is_started:
                    self._start()

    def add(self, name: str, line: str, *, is_last: bool = False) -> None:
        """Record a line of a trace. `is_last` ends the trace, which is then in the spool."""
        self._require_started()
        with self._lock:
            was_empty = not self._pending
            self._pending.append((name, line, is_last))
            self._size += len(line)
            is_full = self._size > MAX_BUFFER_CHARACTERS
        if is_full or is_last:
            self._write()
        elif was_empty:
            self._write_wanted.set()

    def flush(self, timeout: float = 10.0) -> int:
        """Wait up to `timeout` seconds until all traces that have ended are sent. Returns how many
        are not delivered: those that still wait, and those that the service has refused since the
        last call.
        """
        if not self._is_started:
            return 0  # nothing was recorded since the fork
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
                    break
        return self._spool.count_ready() + self._delivery.pop_refused_count()

    def close(self, timeout: float = EXIT_SECONDS) -> int:
        """Flush, and stop the threads. Returns what `flush` returns; what waits remains in the
        spool, and the next process sends it.
        """
        if not self._is_started or self._is_closed:
            return 0
        undelivered = self.flush(timeout)
        with self._state:
            self._is_closed = True
        for event in (self._write_wanted, self._send_wanted, self._is_urgent):
            event.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)  # longer only if the service does not respond
        self.client.close()
        with suppress(OSError):
            self._spool.close()
        return undelivered

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


_recorders: WeakSet[Recorder] = WeakSet()
_default: Recorder | None = None
stand_in: Recorder | None = None
"""Takes the place of the default recorder in tests of agents (`hansei.testing`)."""
_has_warned = False
_default_lock = threading.Lock()
_start_lock = threading.Lock()
_closes_at_exit = False


def default_recorder() -> Recorder | None:
    """The recorder of this process. None if no service is configured, which is logged once, and if
    HANSEI_ENABLED is off.
    """
    global _default, _has_warned
    if stand_in is not None:
        return stand_in
    if not is_enabled():
        return None
    if _default is not None:
        return _default
    with _default_lock:
        if _default is None and not _has_warned:
            try:
                _default = Recorder()
            except HanseiError as error:
                _has_warned = True
                log.warning("Agent runs are not recorded. %s", error.detail)
        return _default


def configure(*, sample_rate: float | None = None, mask: Mask | None = None) -> None:
    """Set what `hansei.trace` and the integrations record: the share of agent runs, and a function
    that gets each text and returns what is recorded instead. Call it once, at the start. Raises
    `ValueError` for a share outside 0 to 1.
    """
    recorder = default_recorder()
    if recorder is not None:
        rate = recorder.options.sample_rate if sample_rate is None else sample_rate
        recorder.options = RecordingOptions(rate, mask)


def flush(timeout: float = 10.0) -> int:
    """Wait up to `timeout` seconds until the traces of all recorders are sent. Returns how many are
    not delivered; 0 means all are.
    """
    deadline = time.monotonic() + timeout
    return sum(one.flush(max(0.0, deadline - time.monotonic())) for one in list(_recorders))


def _close_all() -> None:
    """Close each recorder that this process uses. Those of a parent are not touched."""
    for recorder in list(_recorders):
        recorder.close()


def _close_when_process_ends() -> None:
    """`atexit`, and the same for a child of `multiprocessing`, which leaves without it."""
    global _closes_at_exit
    if _closes_at_exit:
        return
    _closes_at_exit = True
    atexit.register(_close_all)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _close_all, exitpriority=10)


def _leave_parent() -> None:
    """A forked child has none of the threads, and what is open belongs to its parent."""
    global _default_lock, _start_lock, _closes_at_exit
    _default_lock, _start_lock, _closes_at_exit = threading.Lock(), threading.Lock(), False
    for recorder in list(_recorders):
        recorder.leave_parent()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_parent)
