"""A model and how it is asked, by all who think: reflection, the reflectors, the curator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from apps.memory_api.core.prompts import Prompt, load
from apps.memory_api.llm.port import LLM, LLMRequest, Message
from apps.memory_api.reflection.prompt import BUILTIN
from apps.memory_api.runtime import Runtime


def packaged(name: str) -> Prompt:
    """The prompt of this name that comes with the package."""
    return load(name, builtin=BUILTIN)


@dataclass(frozen=True)
class Mind:
    """A model and how it is asked. `timeout` in seconds; `prompt_tokens` bounds what it is shown.
    With `or_rules`, rules answer when the model does not; else its error is raised.
    """

    llm: LLM
    prompt: Callable[[str], Prompt] = packaged
    timeout: float = 60.0
    max_tokens: int = 4096
    prompt_tokens: int = 24_000
    or_rules: bool = False
    tenant_id: UUID | None = None
    run_id: UUID | None = None

    def request(
        self, messages: tuple[Message, ...], *, fixed: int, purpose: str, prompt_hash: str | None
    ) -> LLMRequest:
        """One question. The first `fixed` messages are the same each time, so a provider can keep
        them.
        """
        return LLMRequest(
            messages,
            max_tokens=self.max_tokens,
            timeout=self.timeout,
            cache_prefix=fixed,
            purpose=purpose,
            prompt_hash=prompt_hash,
            tenant_id=self.tenant_id,
            run_id=self.run_id,
        )


def mind_for(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: str | None,
    run_id: UUID | None,
    *,
    builtin: str = BUILTIN,
    prompt_tokens: int | None = None,
    or_rules: bool = False,
) -> Mind | None:
    """The configured model with the prompts that apply to this playbook; None when rules think."""
    if runtime.llm is None:
        return None
    settings = runtime.settings

    def prompt(name: str) -> Prompt:
        return load(
            name,
            tenant=str(tenant_id),
            playbook=playbook,
            operator=settings.prompts_dir,
            builtin=builtin,
        )

    return Mind(
        runtime.llm,
        prompt,
        timeout=settings.llm_timeout,
        max_tokens=settings.llm_max_tokens,
        prompt_tokens=prompt_tokens or settings.llm_prompt_tokens,
        or_rules=or_rules,
        tenant_id=tenant_id,
        run_id=run_id,
    )
