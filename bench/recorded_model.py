"""A model whose answers are recorded: each prompt is paid for once, whatever is asked again."""

from __future__ import annotations

import json
from collections import defaultdict
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.recordings import PATIENCE_SECONDS, without_fence_numbers
from memory_api.llm.port import LLM, LLMReply, LLMRequest, TokenUsage

JUDGE = "grace_judge"
"""The purpose of the calls that compare an answer with its sources."""
asking: ContextVar[str] = ContextVar("asking", default="")
"""What the calls of this context are for: the ID of a question, or ""."""


class NotRecorded(Exception):
    """There is no answer to a prompt, and no model to ask."""


@dataclass(frozen=True)
class RecordedCall:
    """A prompt without the random numbers of its fences, and its answer."""

    purpose: str
    prompt: str
    answer: str
    input_tokens: int
    output_tokens: int


class RecordedModel:
    """Answers a prompt with the recorded answer. A model is asked for one that is not recorded, and
    its answer is stored at once. `error` is why a call had no answer.
    """

    provider, model, endpoint = "compatible", "recorded", "recordings"

    def __init__(self) -> None:
        self.file = Path()
        self.asked: LLM | None = None
        self.judge: LLM | None = None
        self.known: dict[tuple[str, str], RecordedCall] = {}
        self.new_count = 0
        self.calls: dict[str, list[RecordedCall]] = defaultdict(list)
        """The calls by what they were for."""
        self.error: Exception | None = None

    def use(self, file: Path, model: LLM | None = None, judge: LLM | None = None) -> None:
        """Answer from these recordings, and ask this model for what they lack: the judge, if there
        is one, to compare an answer with its sources.
        """
        self.file, self.asked, self.judge = file, model, judge or model
        lines = file.read_text("utf8").splitlines() if file.exists() else []
        stored = [RecordedCall(**json.loads(line)) for line in lines]
        self.known = {(each.purpose, each.prompt): each for each in stored}

    async def complete(self, request: LLMRequest) -> LLMReply:
        prompt = without_fence_numbers("\n\n".join(each.content for each in request.messages))
        call = self.known.get((request.purpose, prompt))
        if call is None:
            try:
                call = await self._ask(request, prompt)
            except Exception as error:
                self.error = error
                raise
        self.calls[asking.get()].append(call)
        usage = TokenUsage(call.input_tokens, call.output_tokens)
        return LLMReply(call.answer, self.model, self.provider, usage)

    async def _ask(self, request: LLMRequest, prompt: str) -> RecordedCall:
        model = self.judge if request.purpose == JUDGE else self.asked
        if model is None:
            raise NotRecorded(
                f"{self.file} has no answer to a prompt of {asking.get()}. Use --ask."
            )
        reply = await model.complete(replace(request, timeout=PATIENCE_SECONDS))
        usage = reply.usage
        call = RecordedCall(
            request.purpose, prompt, reply.text, usage.input_tokens, usage.output_tokens
        )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf8") as file:
            file.write(json.dumps(asdict(call), ensure_ascii=False) + "\n")
        self.known[call.purpose, call.prompt] = call
        self.new_count += 1
        return call

    async def aclose(self) -> None:
        """Its model belongs to whoever opened it."""
