"""A model with the prompts and limits of one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from memory_api.llm.port import LLM, LLMRequest, Message
from memory_api.llm.prompts import Prompt, load_prompt


@dataclass(frozen=True)
class ModelSession:
    """A model with its prompts and limits. `prompt` returns the prompt of a name."""

    llm: LLM
    prompt: Callable[[str], Prompt] = load_prompt
    timeout: float = 60.0
    """Of one call, in seconds."""
    max_tokens: int = 4096
    """Of one answer."""
    prompt_tokens: int = 24_000
    """Maximum size of the data in a prompt, in estimated tokens."""
    fallback_to_rules: bool = False
    """Whether the rules engine replaces a failing model. If false, the model's error is raised."""
    tenant_id: UUID | None = None
    project_id: str | None = None
    run_id: UUID | None = None

    def request(
        self,
        messages: tuple[Message, ...],
        *,
        cache_prefix: int,
        purpose: str,
        prompt_hash: str | None,
    ) -> LLMRequest:
        """Build a request. The first `cache_prefix` messages are the same in each request, so the
        provider can cache them.
        """
        return LLMRequest(
            messages,
            max_tokens=self.max_tokens,
            timeout=self.timeout,
            cache_prefix=cache_prefix,
            purpose=purpose,
            prompt_hash=prompt_hash,
            tenant_id=self.tenant_id,
            project_id=self.project_id,
            run_id=self.run_id,
        )
