"""For the tests of an agent: what it records, without a service.

with recording(advice="# Playbook") as runs:
    my_agent("refund order W1")
assert runs[0]["outcome"] == "success"
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from hansei._model import Json
from hansei.models import RenderPlaybookResponse
from hansei.recording import recorder as recorder_module
from hansei.recording.advice import Advice
from hansei.recording.configuration import RecordingOptions
from hansei.recording.delivery import parse_run
from hansei.recording.recorder import Recorder


@contextmanager
def recording(*, advice: str = "") -> Generator[list[Json]]:
    """Collect the agent runs that end in the block, as they would be sent: the fields of a trace
    with its `events`. Nothing is sent. `advice` is what `render` returns.
    """
    runs: list[Json] = []
    before = recorder_module.stand_in
    recorder_module.stand_in = _MemoryRecorder(runs, advice)
    try:
        yield runs
    finally:
        recorder_module.stand_in = before


class _MemoryRecorder(Recorder):
    """A recorder without threads, files and connections."""

    def __init__(self, runs: list[Json], advice: str) -> None:
        self.options = RecordingOptions(1.0, None)
        self.advice = Advice()
        self.client: Any = _Adviser(advice)
        self._runs = runs
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, line: str, *, is_last: bool = False) -> None:
        self._lines.setdefault(name, []).append(line)
        if is_last:
            run = parse_run(name, "".join(self._lines.pop(name)))
            self._runs.append({**run.fields, "events": [json.loads(each) for each in run.events]})

    def flush(self, timeout: float = 0.0) -> int:
        return 0


class _Adviser:
    """Stands in for the client: `client.playbooks.render`."""

    def __init__(self, text: str) -> None:
        self.playbooks = self
        self._text = text

    def render(self, *_: object, **__: object) -> RenderPlaybookResponse:
        return RenderPlaybookResponse(text=self._text, retrieval_id=None, bullet_keys=[])
