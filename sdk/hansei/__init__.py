"""Hansei: record agent runs with `trace`, `traced` and `tool`; use `render`, `outcome`, `verdict`
and `search` in an agent; call the service with `Hansei` or `AsyncHansei`. Each name is imported
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from hansei import testing
    from hansei.async_client import AsyncHansei
    from hansei.client import Hansei
    from hansei.errors import HanseiError
    from hansei.evaluation.evaluate import evaluate
    from hansei.recording.decorators import tool, traced
    from hansei.recording.recorder import Recorder, configure, flush
    from hansei.recording.trace import RecordedTrace, current_trace, trace, with_trace
    from hansei.recording.words import outcome, render, search, verdict

__all__ = [
    "AsyncHansei",
    "Hansei",
    "HanseiError",
    "RecordedTrace",
    "Recorder",
    "configure",
    "current_trace",
    "evaluate",
    "flush",
    "outcome",
    "render",
    "search",
    "testing",
    "tool",
    "trace",
    "traced",
    "verdict",
    "with_trace",
]

_MODULES = {
    "AsyncHansei": "hansei.async_client",
    "Hansei": "hansei.client",
    "HanseiError": "hansei.errors",
    "evaluate": "hansei.evaluation.evaluate",
    "RecordedTrace": "hansei.recording.trace",
    "Recorder": "hansei.recording.recorder",
    "configure": "hansei.recording.recorder",
    "current_trace": "hansei.recording.trace",
    "flush": "hansei.recording.recorder",
    "outcome": "hansei.recording.words",
    "render": "hansei.recording.words",
    "search": "hansei.recording.words",
    "tool": "hansei.recording.decorators",
    "trace": "hansei.recording.trace",
    "traced": "hansei.recording.decorators",
    "verdict": "hansei.recording.words",
    "with_trace": "hansei.recording.trace",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("hansei")
    if name == "testing":
        return import_module("hansei.testing")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'hansei' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value
