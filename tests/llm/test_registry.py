"""What the settings open."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.llm.providers.openai import OpenAILLM
from memory_api.llm.providers.openai_responses import OpenAIResponsesLLM
from memory_api.llm.registry import check_model_settings, open_configured_models
from tests.support.cases import each_case


def opened(**given: Any) -> list[type]:
    settings = Settings(_env_file=None, openai_api_key="k", **given)  # type: ignore[call-arg]
    return [type(llm) for llm in open_configured_models(settings)]


def test_openai_uses_configured_protocol() -> None:
    assert opened(llm_provider="openai") == [OpenAILLM]
    assert opened(llm_provider="openai", llm_api="responses") == [OpenAIResponsesLLM]


def test_protocol_setting_is_for_openai_only() -> None:
    azure = {"azure_api_key": "k", "azure_endpoint": "http://localhost", "llm_model": "m"}
    assert opened(llm_provider="azure", llm_api="responses", **azure) == [OpenAILLM]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"llm_provider": "openai"}, "HANSEI_OPENAI_API_KEY"),
    ({"llm_provider": "anthropic"}, "HANSEI_ANTHROPIC_API_KEY"),
    ({"llm_provider": "azure", "llm_model": "m"}, "HANSEI_AZURE_API_KEY"),
    ({"llm_provider": "azure", "llm_model": "m", "azure_api_key": "k"}, "HANSEI_AZURE_ENDPOINT"),
    ({"llm_provider": "azure", "azure_api_key": "k", "azure_endpoint": "u"}, "HANSEI_LLM_MODEL"),
    ({"llm_provider": "bedrock"}, "HANSEI_LLM_MODEL"),
]


@each_case(("fields", "said"), WRONG)
def test_missing_setting_is_named(fields: dict[str, Any], said: str) -> None:
    settings = Settings(_env_file=None, **fields)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=said) as raised:
        check_model_settings(settings)
    assert "\n" not in str(raised.value)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    settings = Settings(_env_file=None, llm_provider="bedrock", llm_model=model)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"hansei-server\[bedrock\]"):
        check_model_settings(settings)


def test_bedrock_serves_claude_models_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())

    def check(model: str) -> list[str]:
        settings = Settings(_env_file=None, llm_provider="bedrock", llm_model=model)  # type: ignore[call-arg]
        return check_model_settings(settings)

    profile = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc"
    assert check(f"eu.anthropic.claude-sonnet-4-5-20250929-v1:0,{profile}")[1] == profile
    for other in ("amazon.nova-pro-v1:0", "us.meta.llama3-3-70b-instruct-v1:0"):
        with pytest.raises(ConfigurationError, match="Claude models only"):
            check(other)


def test_local_server_needs_no_key() -> None:
    settings = Settings(_env_file=None, llm_provider="openai", openai_base_url="http://x/v1")  # type: ignore[call-arg]
    assert check_model_settings(settings) == ["gpt-4o-mini"]
