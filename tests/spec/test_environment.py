"""The documents' names of environment variables, and their defaults (S2.37 to S2.46, S5.27 to
S5.29)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.llm.registry import open_configured_models, selected_provider

KEYS = ("OPENAI_", "ANTHROPIC_", "AZURE_", "AWS_")
NAMES = (
    *("HANSEI_", "REFLECTIVE_", "RAE_", "LLM_", "EMBEDDING_", "PLAYBOOK_", "SEARCH_"),
    *KEYS,
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)


def load() -> Settings:
    return Settings(_env_file=None)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "field", "given", "read"),
    [
        ("REFLECTIVE_MEMORY_ENABLED", "reflective_memory_enabled", "false", False),
        ("REFLECTIVE_MEMORY_MODE", "reflective_memory_mode", "lite", "lite"),
        ("RAE_LLM_MODEL_DEFAULT", "llm_model", "some-model", "some-model"),
        ("LLM_PROVIDER", "llm_provider", "bedrock", "bedrock"),
        ("LLM_MODEL", "llm_model", "some-model", "some-model"),
        ("EMBEDDING_MODEL", "embedding_model", "text-embedding-3-small", "text-embedding-3-small"),
        ("PLAYBOOK_DATA_DIR", "playbook_data_dir", "elsewhere", Path("elsewhere")),
        ("SEARCH_ALPHA", "search_alpha", "0.25", 0.25),
    ],
)
def test_documented_variable_names_are_read(
    monkeypatch: pytest.MonkeyPatch, name: str, field: str, given: str, read: Any
) -> None:
    assert getattr(load(), field) != read
    monkeypatch.setenv(name, given)
    assert getattr(load(), field) == read
    monkeypatch.setenv(f"HANSEI_{field.upper()}", "")
    assert getattr(load(), field) == read, "an empty variable is one that is not set"


def test_key_of_openai_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    settings = load()
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "sk-something"
    assert "sk-something" not in repr(settings)


def test_reflection_is_on_and_full_by_default() -> None:
    settings = load()
    assert settings.reflective_memory_enabled is True
    assert settings.reflective_memory_mode == "full"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("REFLECTIVE_MEMORY_MODE", "medium"),
        ("REFLECTIVE_MEMORY_ENABLED", "perhaps"),
        ("LLM_PROVIDER", "cohere"),
    ],
)
def test_invalid_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, given: str) -> None:
    monkeypatch.setenv(name, given)
    with pytest.raises(ValidationError, match=name):
        load()


def test_openai_key_selects_documented_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert selected_provider(load()) == "none"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    settings = load()
    assert selected_provider(settings) == "openai"
    assert [model.model for model in open_configured_models(settings)] == ["gpt-4o-mini"]
    assert settings.embedding_provider == "static", "the embedder never follows from a key"


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_provider_without_key_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    monkeypatch.setenv("LLM_PROVIDER", provider)
    with pytest.raises(ConfigurationError, match=f"HANSEI_LLM_PROVIDER={provider}"):
        open_configured_models(load())


def test_anthropic_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """CON-ACE-003, where both keys are present."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-something")
    assert selected_provider(load()) == "anthropic"
