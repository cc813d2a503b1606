"""All configuration: environment variables with the prefix HANSEI_, `.env` read, the documents'
names as aliases.

`docs/configuration.md` documents every field; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def _env(*names: str) -> AliasChoices:
    return AliasChoices(*names)


class Settings(BaseSettings):
    """Read once at start. A field's description is its documentation."""

    model_config = SettingsConfigDict(
        env_prefix="HANSEI_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
    )

    database_url: str | None = Field(
        None,
        validation_alias=_env("HANSEI_DATABASE_URL", "DATABASE_URL"),
        description="PostgreSQL as the app role. Unset: the embedded server of the data directory.",
    )
    worker_url: str | None = Field(
        None, description="PostgreSQL as the worker role. Unset, the app's URL is used."
    )
    owner_url: str | None = Field(
        None,
        description="PostgreSQL as the owner role: `migrate`, `tenant`, `key`, and the worker's "
        "upkeep of vector indexes. Without it search stays exact, and slow past 100,000 rows.",
    )
    listen_url: str | None = Field(
        None,
        description="Where the worker LISTENs when its URL goes through a transaction pooler.",
    )
    statement_cache: int = Field(
        100, ge=0, description="Prepared statements per connection; 0 behind a transaction pooler."
    )
    pool_size: int = Field(
        10, ge=1, le=200, description="Database connections of one API or worker process."
    )
    data_dir: Path = Field(
        Path(".hansei"), description="Where `hansei up` keeps the embedded database and its key."
    )
    worker_concurrency: int = Field(
        4,
        ge=1,
        le=256,
        description="Jobs of one tenant that one worker process runs at the same time; of all "
        "tenants together a quarter more, at least one.",
    )
    queue_limit: int = Field(
        50_000,
        ge=1,
        description="Runs of one tenant that may wait. Past it, new work is refused with 429.",
    )
    queue_limit_total: int = Field(
        250_000, ge=1, description="Runs of all tenants that may wait, likewise."
    )
    lease_seconds: float = Field(
        30, gt=0, description="How long a run is held before another worker may take it over."
    )
    max_attempts: int = Field(5, ge=1, description="Tries of a background run before it is dead.")
    reflective_memory_enabled: bool = Field(
        True,
        validation_alias=_env("HANSEI_REFLECTIVE_MEMORY_ENABLED", "REFLECTIVE_MEMORY_ENABLED"),
        description="False: traces are stored and nothing is reflected on.",
    )
    reflective_memory_mode: Literal["full", "lite"] = Field(
        "full",
        validation_alias=_env("HANSEI_REFLECTIVE_MEMORY_MODE", "REFLECTIVE_MEMORY_MODE"),
        description="lite: reflections on demand only, and none of plain successes.",
    )
    llm_provider: Literal["openai", "azure", "anthropic", "bedrock", "none"] | None = Field(
        None,
        validation_alias=_env("HANSEI_LLM_PROVIDER", "LLM_PROVIDER"),
        description="Who thinks. Unset: anthropic, openai or azure by the key that is present, in "
        "this order; none without one (rules think).",
    )
    llm_model: str | None = Field(
        None,
        validation_alias=_env("HANSEI_LLM_MODEL", "LLM_MODEL", "RAE_LLM_MODEL_DEFAULT"),
        description="The model, or several with commas: the next is asked when one cannot answer. "
        "Unset: gpt-4o-mini (openai), claude-haiku-5-5 (anthropic).",
    )
    llm_api: Literal["chat", "responses"] = Field(
        "chat", description="Which of OpenAI's two protocols the provider openai is asked in."
    )
    llm_timeout: float = Field(60, gt=0, description="Seconds one exchange with a model may take.")
    llm_concurrency: int = Field(
        32, ge=1, description="Calls of a model that one process has under way at once."
    )
    llm_max_tokens: int = Field(
        4096, ge=256, description="Longest answer of a model, its thinking included."
    )
    llm_prompt_tokens: int = Field(
        24_000,
        ge=2_048,
        description="How much of a trace and its evidence a model is shown, in tokens, estimated.",
    )
    on_model_failure: Literal["rules", "fail"] = Field(
        "rules",
        description="What a waiting caller gets when the model fails. fail: 502. rules: a "
        "reflection and a workflow's answer by rules, degraded, the reflection improved later; of "
        "a trajectory or a transcript an empty answer that says why, and a worker tries it again.",
    )
    evaluators: str = Field(
        "deterministic,threshold",
        description="Who evaluates a trace, most believed first: deterministic, threshold, llm "
        "(one more model call a trace), or NAME=module:function of your own.",
    )
    evaluation_thresholds: str = Field(
        "0.3,0.8",
        description="Scores up to the first are failures, from the second on successes; "
        "`;safety=0.5,1` for one criterion.",
    )
    prompts_dir: Path | None = Field(
        None,
        description="Prompts of your own: NAME.txt for all, TENANT/NAME.txt, "
        "TENANT/PLAYBOOK/NAME.txt.",
    )
    sections_file: Path | None = Field(
        None,
        description="YAML: name of a playbook → the sections that it begins with. Unset: "
        "config/sections.yaml as shipped.",
    )
    embedding_provider: Literal["static", "openai", "fastembed"] = Field(
        "static",
        description="Who makes the vectors of new tenants; never follows from a key that is "
        "present. Others move with `hansei reembed`.",
    )
    embedding_model: str | None = Field(
        None,
        validation_alias=_env("HANSEI_EMBEDDING_MODEL", "EMBEDDING_MODEL"),
        description="The provider's model name; the provider's default when unset.",
    )
    embedding_dimensions: int | None = Field(
        None, ge=8, le=1024, description="Asked of a provider that can shorten its vectors."
    )
    embedding_base_url: str | None = Field(
        None,
        description="Where the embedding provider openai is asked. Unset: HANSEI_OPENAI_BASE_URL.",
    )
    embedding_api_key: SecretStr | None = Field(
        None,
        description="Key of that address, when it is not the one of HANSEI_OPENAI_API_KEY.",
    )
    servings_days: int = Field(
        90, ge=1, description="Days for which searches and renders handed out are kept."
    )
    search_alpha: float = Field(
        0.5,
        ge=0,
        le=1,
        validation_alias=_env("HANSEI_SEARCH_ALPHA", "SEARCH_ALPHA"),
        description="Weight of the vector score in `fusion: minmax`, the formula of spec 2, where "
        "a search does not say.",
    )
    playbook_data_dir: Path = Field(
        Path("data/playbooks"),
        validation_alias=_env("HANSEI_PLAYBOOK_DATA_DIR", "PLAYBOOK_DATA_DIR"),
        description="Where `PlaybookStore` keeps playbooks as JSON files; the service keeps rows.",
    )
    openai_api_key: SecretStr | None = Field(
        None,
        validation_alias=_env("HANSEI_OPENAI_API_KEY", "OPENAI_API_KEY"),
        description="Key of OpenAI or a compatible server.",
    )
    openai_base_url: str | None = Field(
        None,
        validation_alias=_env("HANSEI_OPENAI_BASE_URL", "OPENAI_BASE_URL"),
        description="Another server that speaks OpenAI's protocol.",
    )
    anthropic_api_key: SecretStr | None = Field(
        None,
        validation_alias=_env("HANSEI_ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        description="Key of Anthropic or a server that speaks its protocol.",
    )
    anthropic_base_url: str | None = Field(
        None,
        validation_alias=_env("HANSEI_ANTHROPIC_BASE_URL", "ANTHROPIC_BASE_URL"),
        description="Another server that speaks Anthropic's protocol.",
    )
    azure_api_key: SecretStr | None = Field(
        None,
        validation_alias=_env("HANSEI_AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        description="Key of an Azure OpenAI resource; the model is the deployment's name.",
    )
    azure_endpoint: str | None = Field(
        None,
        validation_alias=_env("HANSEI_AZURE_ENDPOINT", "AZURE_OPENAI_ENDPOINT"),
        description="Address of the Azure OpenAI resource.",
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="Logs for people or for machines."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least urgent event that is logged."
    )

    @classmethod
    def load(cls, **overrides: Any) -> Settings:
        """Settings from the environment; `overrides` win (tests, command-line options)."""
        return cls(**overrides)
