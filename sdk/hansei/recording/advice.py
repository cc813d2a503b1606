"""Renders playbooks for an agent that must not wait: a deadline, a circuit and the last block."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from hansei.errors import HanseiError
from hansei.models import BulletFormat, Match, RenderPlaybookResponse

log = logging.getLogger("hansei")

MAX_WAIT_SECONDS = 1.0
"""How long an agent waits for its advice; HANSEI_RENDER_TIMEOUT sets another value."""
INITIAL_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5.0, 60.0
"""After a failure, nothing is asked for this long. It doubles with each further failure."""
MAX_REMEMBERED = 100


class RenderOptions(TypedDict, total=False):
    """Options of `client.playbooks.render`."""

    project_id: str | None
    token_budget: int | None
    top_k: int | None
    sections: Sequence[str] | None
    format: BulletFormat | None
    min_match: Match | None
    holdout_share: float | None
    session_id: str | None


@dataclass(frozen=True)
class Block:
    """The text for the prompt. `retrieval_id` is None if the text is of an earlier request."""

    text: str
    retrieval_id: str | None


class Advice:
    """The blocks of one service. Safe to share between threads. No method raises because of the
    service.
    """

    def __init__(self) -> None:
        self.max_wait = _read_max_wait()
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}
        self._pause = INITIAL_PAUSE_SECONDS
        self._closed_until = 0.0

    def render(self, playbook: str, request: Callable[[], RenderPlaybookResponse]) -> Block:
        """The block that `request` returns. If that fails or takes too long, the last text of the
        playbook that this process got, or "".
        """
        if time.monotonic() < self._closed_until:
            return self._last_block(playbook)
        try:
            response = _run_with_deadline(request, self.max_wait)
        except (HanseiError, TimeoutError) as error:
            self._fail(error)
            return self._last_block(playbook)
        with self._lock:
            self._pause, self._closed_until = INITIAL_PAUSE_SECONDS, 0.0
            if len(self._last) >= MAX_REMEMBERED:
                self._last.clear()
            self._last[playbook] = response.text
        return Block(response.text, response.retrieval_id)

    def _last_block(self, playbook: str) -> Block:
        return Block(self._last.get(playbook, ""), None)

    def _fail(self, error: HanseiError | TimeoutError) -> None:
        detail = error.detail if isinstance(error, HanseiError) else str(error)
        with self._lock:
            pause = self._pause
            self._closed_until = time.monotonic() + pause
            self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
        log.warning("The agent runs without new advice for %g seconds. %s", pause, detail)


def _run_with_deadline(
    request: Callable[[], RenderPlaybookResponse], seconds: float
) -> RenderPlaybookResponse:
    """Timeouts of a connection count from byte to byte, so the whole request has one here."""
    done: list[RenderPlaybookResponse | Exception] = []

    def run() -> None:
        try:
            done.append(request())
        except Exception as error:  # raised again in the caller's thread
            done.append(error)

    thread = threading.Thread(target=run, name="hansei-render", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        unit = "second" if seconds == 1 else "seconds"
        raise TimeoutError(f"The service did not respond within {seconds:g} {unit}.")
    if isinstance(done[0], Exception):
        raise done[0]
    return done[0]


def _read_max_wait() -> float:
    text = os.environ.get("HANSEI_RENDER_TIMEOUT", "")
    if not text:
        return MAX_WAIT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 60:
        log.warning("HANSEI_RENDER_TIMEOUT must be seconds between 0 and 60, not %r.", text)
        return MAX_WAIT_SECONDS
    return seconds
