"""Answers the prompts of the demo with what a reader answered to the same runs and lessons."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from uuid import UUID

from memory_api.budgets.accounting import FinishedCall, ModelAccounting
from memory_api.budgets.reservations import CostEstimate
from memory_api.core.ids import new_id
from memory_api.demo.history import Desk, Json
from memory_api.llm.errors import LLMError
from memory_api.llm.port import LLMReply, LLMRequest, TokenUsage
from memory_api.text.terms import estimate_tokens

_TASK = re.compile(r"<task-[0-9a-f]{16}>\n")
_LESSON = re.compile(r"^(\d+)\. \(\w+\) (.+)$", re.MULTILINE)
_KNOWN = re.compile(r"^\[(L\d+)\] (.+)$", re.MULTILINE)
_BULLET = re.compile(r"^\[([a-z]+-\d+)\] ", re.MULTILINE)


class NotRecorded(LLMError):
    """The recording has no answer to this prompt."""


class CallLog(ModelAccounting):
    """The calls. There is no budget for which each one would be reserved and settled."""

    def __init__(self) -> None:
        self.finished: list[FinishedCall] = []

    async def reserve(self, estimate: CostEstimate) -> UUID:
        return new_id()

    async def finish(self, call: FinishedCall) -> None:
        self.finished.append(call)


class RecordedModel:
    """A model port without a provider. Tokens are estimated from the texts."""

    provider, model, endpoint = "compatible", "recorded-reader", "recording"

    def __init__(self, desks: Sequence[Desk]) -> None:
        self.keys: dict[str, str] = {}
        """The title with which a bullet was added → its key. The loader updates it."""
        runs = [item for desk in desks for item in desk.items if item["type"] == "run"]
        self._reflections: dict[str, Json] = {
            run["task"]: run["reflection"] for run in runs if run["reflection"]
        }
        self._operations = [operation for desk in desks for operation in desk.curations]
        self._consolidations = [change for desk in desks for change in desk.consolidations]

    async def complete(self, request: LLMRequest) -> LLMReply:
        """Raises `NotRecorded`."""
        prompt = request.messages[-1].content
        if request.purpose == "reflect":
            answer = self._reflection(prompt)
        elif request.purpose == "curate":
            answer = self._curation(prompt)
        elif request.purpose == "consolidate":
            answer = self._consolidation(prompt)
        else:
            raise NotRecorded(f"The recording has no answer for {request.purpose}.")
        text = json.dumps(answer, ensure_ascii=False)
        read = sum(estimate_tokens(message.content) for message in request.messages)
        usage = TokenUsage(read, estimate_tokens(text))
        return LLMReply(text, self.model, self.provider, usage)

    def _reflection(self, prompt: str) -> Json:
        fence = _TASK.search(prompt)
        task = prompt[fence.end() :].partition("\n</task-")[0] if fence else ""
        answer = self._reflections.get(task)
        if answer is None:
            raise NotRecorded("The recording has no reflection on this run.")
        names = {text: name for name, text in _KNOWN.findall(prompt)}
        verdicts = [v | {"key": self.keys[v["key"]]} for v in answer["verdicts"]]
        return answer | {
            "same_as": [names[text] for text in answer["same_as"] if text in names],
            "verdicts": verdicts,
        }

    def _curation(self, prompt: str) -> Json:
        """The recorded operations on the lessons of the prompt. If another lesson of a bullet comes
        after it was added, the bullet is kept.
        """
        numbers: dict[str, list[int]] = {}
        for number, text in _LESSON.findall(prompt):
            numbers.setdefault(text, []).append(int(number))
        operations: list[Json] = []
        for operation in self._operations:
            texts = dict.fromkeys(operation["lessons"])
            lessons = [number for text in texts for number in numbers.get(text, ())]
            if not lessons:
                continue
            if operation["type"] == "ADD" and operation["title"] in self.keys:
                known = {"type": "KEEP", "bullet_id": operation["title"]}
            else:
                known = {}
            operations.append(self._with_keys(operation | known) | {"lessons": lessons})
        return {"reasoning": "Recorded operations.", "operations": operations}

    def _consolidation(self, prompt: str) -> Json:
        """The recorded changes of bullets that are all in the prompt."""
        shown = set(_BULLET.findall(prompt))
        operations = [
            self._with_keys(change)
            for change in self._consolidations
            if {self.keys.get(t) for t in (change["bullet_id"], *change["source_ids"])} <= shown
        ]
        return {"reasoning": "Recorded operations.", "operations": operations}

    def _with_keys(self, operation: Json) -> Json:
        return operation | {
            "bullet_id": self.keys.get(operation["bullet_id"]),
            "source_ids": [self.keys[title] for title in operation["source_ids"]],
            "contradicts": [self.keys[t] for t in operation["contradicts"] if t in self.keys],
        }

    async def aclose(self) -> None:
        """There is no connection."""
