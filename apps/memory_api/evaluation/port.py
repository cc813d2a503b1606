"""What an evaluator is. One of your own is a class with this method and a function that opens it;
see `registry`.
"""

from __future__ import annotations

from typing import Protocol

from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation.case import Case
from apps.memory_api.evaluation.schemas import Found
from apps.memory_api.llm.port import LLM


class Evaluator(Protocol):
    """Scores a run. No transaction is open while it works. It may raise: the run of ours then fails
    and is tried again.
    """

    async def evaluate(self, case: Case) -> Found: ...


class Opener(Protocol):
    """Makes an evaluator from the settings and the model, which is None when rules think."""

    def __call__(self, settings: Settings, llm: LLM | None) -> Evaluator: ...
