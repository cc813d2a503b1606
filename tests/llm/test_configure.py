"""What the settings open."""

from __future__ import annotations

from typing import Any

from apps.memory_api.core.settings import Settings
from apps.memory_api.llm.configure import open_models
from apps.memory_api.llm.openai import OpenAILLM
from apps.memory_api.llm.responses import OpenAIResponsesLLM


def opened(**given: Any) -> list[type]:
    settings = Settings(_env_file=None, openai_api_key="k", **given)  # type: ignore[call-arg]
    return [type(llm) for llm in open_models(settings)]


def test_openai_is_asked_in_the_protocol_that_is_set() -> None:
    assert opened(llm_provider="openai") == [OpenAILLM]
    assert opened(llm_provider="openai", llm_api="responses") == [OpenAIResponsesLLM]


def test_the_protocol_is_openais_alone() -> None:
    azure = {"azure_api_key": "k", "azure_endpoint": "http://localhost", "llm_model": "m"}
    assert opened(llm_provider="azure", llm_api="responses", **azure) == [OpenAILLM]
