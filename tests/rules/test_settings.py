"""Every setting is documented, can be set by each of its names, and is used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from memory_api.core.settings import Settings
from tests.rules.configuration import DOCUMENT, MADE, names
from tests.rules.sources import files
from tests.support.cases import each_case

FIELDS = list(Settings.model_fields)
VALUES: dict[str, tuple[str, Any]] = {
    "data_dir": ("elsewhere", Path("elsewhere")),
    "llm_provider": ("bedrock", "bedrock"),
    "llm_api": ("responses", "responses"),
    "on_model_failure": ("fail", "fail"),
    "playbook_data_dir": ("elsewhere", Path("elsewhere")),
    "prompts_dir": ("prompts", Path("prompts")),
    "sections_file": ("own.yaml", Path("own.yaml")),
    "reflective_memory_enabled": ("false", False),
    "reflective_memory_mode": ("lite", "lite"),
    "embedding_provider": ("fastembed", "fastembed"),
    "embedding_dimensions": ("128", 128),
    "metrics_token": ("a-token-of-16-characters", SecretStr("a-token-of-16-characters")),
    "worker_metrics_port": ("9321", 9321),
    "pii_redaction": ("email, phone", "email, phone"),
    "pii_phone_region": ("JP", "JP"),
    "trusted_feedback": ("error,test_report", "error,test_report"),
    "rate_limit_key": ("5/second", "5/second"),
    "rate_limit_tenant": ("off", "off"),
    "rate_limit_failed_keys": ("7/hour", "7/hour"),
    "dreaming_min_importance": ("0.7", 0.7),
    "reflection_batch_size": ("3", 3),
    "advice_holdout_share": ("0.1", 0.1),
    "log_format": ("json", "json"),
    "log_level": ("error", "error"),
}
"""A value that is not the default, as it is written and as it is read."""


def value_of(field: str) -> tuple[str, Any]:
    if field in VALUES:
        return VALUES[field]
    default = Settings.model_fields[field].default
    if isinstance(default, bool):
        return str(not default), not default
    if isinstance(default, int | float):
        return str(default * 2), default * 2
    if field.endswith(("_key", "_secret")):
        return "secret of the test", SecretStr("secret of the test")
    return f"the-{field}", f"the-{field}"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in FIELDS:
        for name in names(field):
            monkeypatch.delenv(name, raising=False)


def load() -> Settings:
    return Settings(_env_file=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_every_setting_is_documented_and_passed_on_by_compose(path: Path) -> None:
    """Correct it with `python -m tests.rules.configuration`."""
    document = path.read_text(encoding="utf-8")
    assert document == MADE[path](document)


def test_document_names_only_existing_settings() -> None:
    known = {name for field in FIELDS for name in names(field)}
    named = set(re.findall(r"`((?:HANSEI|RAE)_[A-Z_]+)", DOCUMENT.read_text(encoding="utf-8")))
    assert named <= known


@pytest.mark.parametrize("field", FIELDS)
def test_setting_is_read_by_each_name(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.model_fields[field].description
    text, value = value_of(field)
    assert getattr(load(), field) != value
    for name in names(field):
        with monkeypatch.context() as patch:
            patch.setenv(name, text)
            assert getattr(load(), field) == value, name


@pytest.mark.parametrize("field", [field for field in FIELDS if len(names(field)) > 1])
def test_hansei_name_wins(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = value_of(field)
    own, *others = names(field)
    assert own.startswith("HANSEI_")
    for other in others:
        monkeypatch.setenv(other, str(Settings.model_fields[field].default))
    monkeypatch.setenv(own, text)
    assert getattr(load(), field) == value


@each_case("field", FIELDS)
def test_every_setting_is_used(field: str) -> None:
    used = re.compile(rf"\bsettings\.{field}\b")
    assert any(
        used.search(path.read_text(encoding="utf-8"))
        for path in files("apps", suffix=".py")
        if path.name != "settings.py"
    )


def test_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSEI_DATABASE_URL", "")
    monkeypatch.setenv("HANSEI_WORKER_CONCURRENCY", "")
    assert load().database_url is None
    assert load().worker_concurrency == 4


def test_invalid_value_error_names_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSEI_WORKER_CONCURRENCY", "many")
    with pytest.raises(ValidationError, match="worker_concurrency"):
        load()


def test_repr_hides_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    assert "very-secret" not in repr(load())
