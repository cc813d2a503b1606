"""Opens a provider by name and builds the chain of wrappers. The one place that imports inside a
function: a provider's SDK is loaded only when it is selected."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from apps.memory_api.llm.budget import Budget, Budgeted
from apps.memory_api.llm.fallback import Fallback
from apps.memory_api.llm.ledger import Ledger, Recorded
from apps.memory_api.llm.port import LLM
from apps.memory_api.llm.retry import FOREGROUND_ATTEMPTS, Retry

_OPENERS = {
    "openai": ("apps.memory_api.llm.openai", "open_openai"),
    "openai-responses": ("apps.memory_api.llm.responses", "open_responses"),
    "azure": ("apps.memory_api.llm.openai", "open_azure"),
    "anthropic": ("apps.memory_api.llm.anthropic", "open_anthropic"),
    "bedrock": ("apps.memory_api.llm.anthropic", "open_bedrock"),
}
PROVIDERS = (*_OPENERS, "none")


def open_llm(
    provider: str,
    *,
    model: str,
    api_key: str | None = None,
    base_url: str | None = None,
    **options: str,
) -> LLM | None:
    """The provider's LLM, bare; None for "none". Options: `api_version` (azure), `region`
    (bedrock).

    Raises ValueError, naming the choices, for a provider we do not have, and for a key or address
    that is missing.
    """
    if provider == "none":
        return None
    if provider not in _OPENERS:
        raise ValueError(f"unknown provider {provider!r}; choose one of {', '.join(PROVIDERS)}")
    module, name = _OPENERS[provider]
    opener: Callable[..., LLM] = getattr(importlib.import_module(module), name)
    return opener(model=model, api_key=api_key, base_url=base_url, **options)


def compose(
    llms: Sequence[LLM],
    *,
    ledger: Ledger,
    budget: Budget | None = None,
    attempts: int = FOREGROUND_ATTEMPTS,
    retry: Callable[..., LLM] = Retry,
) -> LLM:
    """fallback(retry(budget(ledger(provider)))): each attempt is reserved, recorded and settled by
    itself.

    `retry` replaces `Retry` (tests hand in one that does not wait).
    """
    ready = [Recorded(llm, ledger) for llm in llms]
    guarded = [Budgeted(llm, budget) if budget is not None else llm for llm in ready]
    chain = [retry(llm, attempts=attempts) for llm in guarded]
    return chain[0] if len(chain) == 1 else Fallback(chain)
