"""Evaluators by name. `HANSEI_EVALUATORS` lists them in order of precedence:

    HANSEI_EVALUATORS=deterministic,threshold,llm,tone=acme.checks:open_tone

A name alone is a built-in evaluator. `name=module:function` is a plug-in: the function takes
`(settings, llm)` and returns an object with `async def evaluate(case) -> EvaluatorResult`. Its
module must be importable by the API and the worker. Its scores are stored under its name.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, Protocol, cast

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.evaluation.evaluators.threshold import thresholds_of
from memory_api.evaluation.schemas import EvaluationInput, EvaluatorResult
from memory_api.llm.port import LLM
from memory_api.llm.registry import selected_provider


class Evaluator(Protocol):
    """Scores a run without an open transaction. If it raises, the evaluation run fails and is
    retried.
    """

    async def evaluate(self, case: EvaluationInput) -> EvaluatorResult: ...


class EvaluatorFactory(Protocol):
    """Creates an evaluator from the settings and the model (None without a model)."""

    def __call__(self, settings: Settings, llm: LLM | None) -> Evaluator: ...


BUILTIN_EVALUATORS = {
    "deterministic": "memory_api.evaluation.evaluators.deterministic:open_evaluator",
    "threshold": "memory_api.evaluation.evaluators.threshold:open_evaluator",
    "llm": "memory_api.evaluation.evaluators.model:open_evaluator",
}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def open_evaluators(settings: Settings, llm: LLM | None) -> Sequence[tuple[str, Evaluator]]:
    """The configured evaluators by name. Raises `ConfigurationError` that names the invalid one."""
    return [(name, opener(settings, llm)) for name, opener in _openers(settings).items()]


def check_settings(settings: Settings) -> None:
    """Checks the settings at the start of a process. Raises `ConfigurationError`."""
    thresholds_of(settings)
    if "llm" in _openers(settings) and selected_provider(settings) == "none":
        raise ConfigurationError(
            "HANSEI_EVALUATORS has llm, which needs a model (HANSEI_LLM_PROVIDER)."
        )


def _openers(settings: Settings) -> dict[str, EvaluatorFactory]:
    openers: dict[str, EvaluatorFactory] = {}
    for entry in filter(None, (entry.strip() for entry in settings.evaluators.split(","))):
        name, _, path = entry.partition("=")
        if not _NAME.fullmatch(name) or name in openers or (path and name in BUILTIN_EVALUATORS):
            raise _invalid(
                f"Each name must be unique and consist of a-z, 0-9, - and _, not {name!r}."
            )
        if not path and name not in BUILTIN_EVALUATORS:
            raise _invalid(
                f"Unknown evaluator {name!r}. Use {', '.join(BUILTIN_EVALUATORS)}"
                " or NAME=MODULE:FUNCTION."
            )
        openers[name] = _load(name, path or BUILTIN_EVALUATORS[name])
    return openers


def _load(name: str, path: str) -> EvaluatorFactory:
    module, _, attribute = path.partition(":")
    try:
        opener: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise _invalid(f"{name}={path}: {error}") from error
    if not callable(opener):
        raise _invalid(f"{name}={path} is not callable.")
    return cast(EvaluatorFactory, opener)


def _invalid(reason: str) -> ConfigurationError:
    return ConfigurationError(f"HANSEI_EVALUATORS: {reason}")
