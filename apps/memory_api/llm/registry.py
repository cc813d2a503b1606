"""Opens the configured models. Imports a provider's SDK only if the provider is selected."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence

from pydantic import SecretStr

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.llm.port import LLM

_PROVIDER_OPENERS = {
    "openai": ("memory_api.llm.providers.openai", "open_openai"),
    "openai-responses": ("memory_api.llm.providers.openai_responses", "open_responses"),
    "azure": ("memory_api.llm.providers.openai", "open_azure"),
    "anthropic": ("memory_api.llm.providers.anthropic", "open_anthropic"),
    "bedrock": ("memory_api.llm.providers.anthropic", "open_bedrock"),
}
PROVIDERS = (*_PROVIDER_OPENERS, "none")


def open_llm(
    provider: str,
    *,
    model: str,
    api_key: str | None = None,
    base_url: str | None = None,
    **options: str,
) -> LLM | None:
    """Open a model of a provider, without wrappers; None for the provider "none".

    Options: `api_version` (azure), `region` (bedrock). Raises ValueError for an unknown provider
    and for a missing key or base URL.
    """
    if provider == "none":
        return None
    if provider not in _PROVIDER_OPENERS:
        raise ValueError(f"Unknown provider {provider!r}. Use one of: {', '.join(PROVIDERS)}.")
    module, name = _PROVIDER_OPENERS[provider]
    opener: Callable[..., LLM] = getattr(importlib.import_module(module), name)
    return opener(model=model, api_key=api_key, base_url=base_url, **options)


DEFAULT_MODELS = {"openai": "gpt-4o-mini", "anthropic": "claude-haiku-5-5"}
"""The model of a provider if HANSEI_LLM_MODEL is unset."""

Credentials = tuple[SecretStr | None, str | None]
"""API key and base URL."""


def selected_provider(settings: Settings) -> str:
    """The configured provider, else the first one with an API key, else "none"."""
    if settings.llm_provider is not None:
        return settings.llm_provider
    credentials = _credentials_by_provider(settings)
    return next((name for name, (key, _) in credentials.items() if key is not None), "none")


def open_configured_models(settings: Settings) -> list[LLM]:
    """Open the configured models, without wrappers, in fallback order. Empty if only the rules
    engine runs. Raises `ConfigurationError`.
    """
    provider = selected_provider(settings)
    names = check_model_settings(settings)
    if not names:
        return []
    key, base_url = _credentials_by_provider(settings).get(provider, (None, None))
    api_key = key.get_secret_value() if key else None
    if provider == "openai" and settings.llm_api == "responses":
        opener = "openai-responses"
    else:
        opener = provider
    try:
        llms = [open_llm(opener, model=name, api_key=api_key, base_url=base_url) for name in names]
    except (ValueError, ImportError) as error:
        raise ConfigurationError(f"HANSEI_LLM_PROVIDER={provider}: {error}") from error
    return [llm for llm in llms if llm is not None]


def check_model_settings(settings: Settings) -> list[str]:
    """Return the names of the configured models, in fallback order; none for the rules engine.

    Raises `ConfigurationError` for a missing key, endpoint, model or extra. Imports no SDK.
    """
    provider = selected_provider(settings)
    if provider == "none":
        return []
    model = settings.llm_model or (settings.anthropic_model if provider == "anthropic" else None)
    names = [name.strip() for name in (model or "").split(",") if name.strip()]
    names = names or [DEFAULT_MODELS[provider]] if provider in DEFAULT_MODELS else names
    if not names:
        raise ConfigurationError(
            f"HANSEI_LLM_PROVIDER={provider} has no default model. Set HANSEI_LLM_MODEL."
        )
    if provider == "bedrock":
        _check_bedrock(names)
        return names
    key, base_url = _credentials_by_provider(settings)[provider]
    if key is None and (provider != "openai" or base_url is None):
        setting = _KEY_SETTINGS[provider]
        raise ConfigurationError(f"HANSEI_LLM_PROVIDER={provider} needs an API key. Set {setting}.")
    if provider == "azure" and base_url is None:
        raise ConfigurationError("HANSEI_LLM_PROVIDER=azure needs HANSEI_AZURE_ENDPOINT.")
    return names


_KEY_SETTINGS = {
    "anthropic": "HANSEI_ANTHROPIC_API_KEY",
    "openai": "HANSEI_OPENAI_API_KEY",
    "azure": "HANSEI_AZURE_API_KEY",
}


def _check_bedrock(models: Sequence[str]) -> None:
    if importlib.util.find_spec("botocore") is None:
        raise ConfigurationError(
            "HANSEI_LLM_PROVIDER=bedrock needs an extra: pip install 'hansei-server[bedrock]'."
        )
    for model in models:
        # An ARN of an inference profile does not name its model.
        if "anthropic" not in model and not model.startswith("arn:"):
            raise ConfigurationError(
                f"HANSEI_LLM_MODEL={model}: the provider bedrock serves Claude models only, such"
                " as us.anthropic.claude-sonnet-4-5-20250929-v1:0."
            )


def _credentials_by_provider(settings: Settings) -> dict[str, Credentials]:
    """In the order in which `selected_provider` prefers them."""
    return {
        "anthropic": (settings.anthropic_api_key, settings.anthropic_base_url),
        "openai": (settings.openai_api_key, settings.openai_base_url),
        "azure": (settings.azure_api_key, settings.azure_endpoint),
    }
