"""The models that the settings ask for."""

from __future__ import annotations

from pydantic import SecretStr

from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.settings import Settings
from apps.memory_api.llm.port import LLM
from apps.memory_api.llm.registry import open_llm

DEFAULTS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-5-5"}
"""The provider's model when none is named."""

RESPONSES = ("openai", "responses")

Access = tuple[SecretStr | None, str | None]
"""A key and an address."""


def provider_of(settings: Settings) -> str:
    """The provider that is set, else the first that has a key, else none."""
    if settings.llm_provider is not None:
        return settings.llm_provider
    keys = (name for name, (key, _) in _access(settings).items() if key is not None)
    return next(keys, "none")


def open_models(settings: Settings) -> list[LLM]:
    """The configured models, bare, in the order they are asked; none when rules think. Raises
    `Misconfigured` with one line that says what is missing.
    """
    provider = provider_of(settings)
    if provider == "none":
        return []
    names = [name.strip() for name in (settings.llm_model or "").split(",") if name.strip()]
    names = names or [DEFAULTS[provider]] if provider in DEFAULTS else names
    if not names:
        raise Misconfigured(f"HANSEI_LLM_PROVIDER={provider} needs HANSEI_LLM_MODEL.")
    key, url = _access(settings).get(provider, (None, None))
    secret = key.get_secret_value() if key else None
    opener = "openai-responses" if (provider, settings.llm_api) == RESPONSES else provider
    try:
        opened = [open_llm(opener, model=name, api_key=secret, base_url=url) for name in names]
    except (ValueError, ImportError) as error:
        raise Misconfigured(f"HANSEI_LLM_PROVIDER={provider}: {error}") from error
    return [llm for llm in opened if llm is not None]


def _access(settings: Settings) -> dict[str, Access]:
    return {
        "anthropic": (settings.anthropic_api_key, settings.anthropic_base_url),
        "openai": (settings.openai_api_key, settings.openai_base_url),
        "azure": (settings.azure_api_key, settings.azure_endpoint),
    }
