"""Evaluators by name. `HANSEI_EVALUATORS` lists them in the order in which they are believed:

    HANSEI_EVALUATORS=deterministic,threshold,llm,tone=acme.checks:open_tone

A name alone is one of ours. `name=module:function` is one of yours: the function takes
`(settings, llm)` and returns an object with `async def evaluate(case) -> Found` (`port`). Its
module must be importable by the API and the worker. What it scores is stored under its name.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, cast

from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation.port import Evaluator, Opener
from apps.memory_api.evaluation.threshold import thresholds_of
from apps.memory_api.llm.configure import provider_of
from apps.memory_api.llm.port import LLM

OURS = {
    "deterministic": "apps.memory_api.evaluation.deterministic:open_evaluator",
    "threshold": "apps.memory_api.evaluation.threshold:open_evaluator",
    "llm": "apps.memory_api.evaluation.model:open_evaluator",
}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def open_evaluators(settings: Settings, llm: LLM | None) -> Sequence[tuple[str, Evaluator]]:
    """The configured evaluators with their names. Raises `Misconfigured` with one line that says
    which of them is wrong, and how.
    """
    return [(name, opener(settings, llm)) for name, opener in _openers(settings).items()]


def check(settings: Settings) -> None:
    """Raises `Misconfigured`, at the start of a process, for what would fail every evaluation."""
    thresholds_of(settings)
    if "llm" in _openers(settings) and provider_of(settings) == "none":
        raise Misconfigured("HANSEI_EVALUATORS has llm, which needs a model (HANSEI_LLM_PROVIDER).")


def _openers(settings: Settings) -> dict[str, Opener]:
    found: dict[str, Opener] = {}
    for part in filter(None, (one.strip() for one in settings.evaluators.split(","))):
        name, _, path = part.partition("=")
        if not _NAME.fullmatch(name) or name in found or (path and name in OURS):
            raise _wrong(f"{name!r} is given twice, or is no name (a-z, 0-9, -, _)")
        if not path and name not in OURS:
            raise _wrong(f"unknown evaluator {name!r}; ours are {', '.join(OURS)}")
        found[name] = _load(name, path or OURS[name])
    return found


def _load(name: str, path: str) -> Opener:
    module, _, attribute = path.partition(":")
    try:
        opener: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise _wrong(f"{name}={path}: {error}") from error
    if not callable(opener):
        raise _wrong(f"{name}={path} cannot be called")
    return cast(Opener, opener)


def _wrong(why: str) -> Misconfigured:
    return Misconfigured(f"HANSEI_EVALUATORS: {why}")
