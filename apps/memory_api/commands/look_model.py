"""`hansei doctor` on the model's provider: is it there, and does it take the key. A list of models
is asked for, which costs nothing. Keys are never shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from apps.memory_api.commands.finding import Finding
from apps.memory_api.core.settings import Settings
from apps.memory_api.llm.configure import open_models, provider_of
from apps.memory_api.llm.errors import LLMAuth, LLMBadRequest, LLMError
from apps.memory_api.llm.port import LLM, Lists

NAME = "model"
PATIENCE = 10.0
"""Seconds."""


async def look_at_model(settings: Settings) -> Finding:
    """The first of the configured models; the others are of the same provider."""
    provider = provider_of(settings)
    models = open_models(settings)
    try:
        if not models:
            return Finding(NAME, True, "none is configured: rules think")
        if provider == "bedrock" or not isinstance(models[0], Lists):
            return Finding(NAME, True, f"{provider} {models[0].model}, not asked: it would cost")
        return await _ask(models[0], models[0], settings)
    finally:
        for model in models:
            await model.aclose()


async def _ask(llm: LLM, lists: Lists, settings: Settings) -> Finding:
    what = f"{llm.provider} {llm.model} at {llm.endpoint}"
    try:
        known = await lists.list_models(PATIENCE)
    except LLMAuth:
        return Finding(NAME, False, f"{what}: the key is refused", _key_of(llm.provider))
    except LLMBadRequest:  # some servers have no such list
        return Finding(NAME, True, f"{what}: it answers")
    except LLMError as error:
        mend = "Is the address right, and the way to it open? Until then rules think."
        return Finding(NAME, False, f"{what}: {error.code}: {error}", mend)
    return Finding(NAME, True, f"{what}: it answers and takes the key", _unknown(llm.model, known))


def _unknown(model: str, known: Sequence[str]) -> str:
    """A hint, not a fault: an alias of a model may not be listed."""
    if not known or any(name == model or name.startswith(model) for name in known):
        return ""
    return f"It does not list '{model}': is HANSEI_LLM_MODEL right?"


def _key_of(provider: str) -> str:
    names = {"anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_OPENAI_API_KEY"}
    return f"Set {names.get(provider, 'OPENAI_API_KEY')} to a key that is valid."
