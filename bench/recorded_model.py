"""A model whose answers are recorded, so that a bench can be repeated and each prompt is paid for
once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from memory_api.llm.port import LLM, LLMReply, LLMRequest, TokenUsage

PATIENCE_SECONDS = 7200.0
"""How long a bench waits for an answer, which a reader may write."""
_FENCE_NUMBER = re.compile(r"(</?[a-z-]+-)[0-9a-f]{16}>")
call_name: ContextVar[str] = ContextVar("call_name", default="")
"""What the calls of this context are for: a run, a question, or ""."""


class NotRecorded(Exception):
    """There is no answer to a prompt, and no model to ask."""


@dataclass(frozen=True)
class RecordedCall:
    """A prompt, without the random numbers of its fences, and its answer."""

    purpose: str
    prompt: str
    answer: str = ""
    name: str = ""
    instructions: str = ""
    """A hash of the system message, where `prompt` does not contain it."""
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def question(self) -> tuple[str, str, str]:
        return self.purpose, self.instructions, self.prompt


def without_fence_numbers(prompt: str) -> str:
    """The prompt with `…` for the random numbers of its fences, which differ in each request."""
    return _FENCE_NUMBER.sub(r"\1…>", prompt)


def user_prompt(request: LLMRequest) -> str:
    """The messages except those of the system."""
    messages = [m.content for m in request.messages if m.role != "system"]
    return without_fence_numbers("\n\n".join(messages))


def read_calls(file: Path) -> list[RecordedCall]:
    """The recorded calls; none if there is no file."""
    lines = file.read_text(encoding="utf8").splitlines() if file.is_file() else []
    return [RecordedCall(**({"purpose": "reflect"} | json.loads(line))) for line in lines]


def write_calls(file: Path, calls: Iterable[RecordedCall], *, append: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a" if append else "w", encoding="utf8") as out:
        for call in calls:
            fields = {name: value for name, value in asdict(call).items() if value not in ("", 0)}
            out.write(json.dumps(fields, ensure_ascii=False) + "\n")


class RecordedModel:
    """Answers a prompt with its recorded answer. If there is another model, asks it for the answers
    that are missing, and appends each to the file at once.
    """

    provider, model, endpoint = "compatible", "recorded", "recordings"

    def __init__(self, file: Path = Path(), asked: LLM | None = None) -> None:
        self.used: list[RecordedCall] = []
        self.new_count = 0
        self.open_file(file, asked)

    def open_file(self, file: Path, asked: LLM | None) -> None:
        self.file, self.asked = file, asked
        calls = read_calls(file)
        self.by_name = {call.name: call for call in calls}
        self._known = {call.question: call for call in calls}

    async def complete(self, request: LLMRequest) -> LLMReply:
        mine = self.to_call(request)
        known = self._known.get(mine.question)
        known = replace(known, name=mine.name) if known else await self.find_answer(mine, request)
        self.used.append(known)
        usage = TokenUsage(known.input_tokens, known.output_tokens)
        return LLMReply(known.answer, self.model, self.provider, usage)

    def to_call(self, request: LLMRequest) -> RecordedCall:
        """The request without its answer."""
        prompt = without_fence_numbers("\n\n".join(each.content for each in request.messages))
        return RecordedCall(request.purpose, prompt, name=call_name.get())

    async def find_answer(self, mine: RecordedCall, request: LLMRequest) -> RecordedCall:
        """The call with the answer to a prompt that is not recorded exactly so."""
        return await self.ask(mine, request, self.asked)

    async def ask(self, mine: RecordedCall, request: LLMRequest, model: LLM | None) -> RecordedCall:
        if model is None:
            raise NotRecorded(f"{self.file} has no answer to a prompt of {mine.name}.")
        reply = await model.complete(replace(request, timeout=PATIENCE_SECONDS))
        tokens = reply.usage.input_tokens, reply.usage.output_tokens
        call = replace(mine, answer=reply.text, input_tokens=tokens[0], output_tokens=tokens[1])
        write_calls(self.file, [call], append=True)
        self._known[call.question] = call
        self.new_count += 1
        return call

    async def aclose(self) -> None:
        """Its model belongs to whoever opened it."""
