"""All configuration: environment variables with the prefix HANSEI_, and the file `.env`.

Some variables have a second name that the source documents use. A test compares the fields with
`docs/configuration.md`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from limits import RateLimitItem, parse
from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict

from memory_api.core.learning_settings import LearningSettings
from memory_api.core.personal_data import parse_kinds


def _env(*names: str) -> AliasChoices:
    return AliasChoices(*names)


def parse_rate_limit(text: str) -> RateLimitItem | None:
    """A limit such as `100/second`. None for `off`. Raises `ValueError`."""
    if text == "off":
        return None
    try:
        limit = parse(text)
    except ValueError:
        raise ValueError("must be a number per unit, such as 100/second, or off") from None
    if limit.amount < 1:
        raise ValueError("must allow at least 1 request, or be off")
    return limit


MIN_SECRET_LENGTH = 16


class Settings(LearningSettings):
    """The configuration of a process, read once at startup."""

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
        description="PostgreSQL URL of the app role. If unset, the embedded PostgreSQL of the data "
        "directory.",
    )
    worker_url: str | None = Field(
        None, description="PostgreSQL URL of the worker role. If unset, HANSEI_DATABASE_URL."
    )
    owner_url: str | None = Field(
        None,
        description="PostgreSQL URL of the owner role. `hansei migrate`, `tenant` and `key` need "
        "it. The worker needs it to build vector indexes; without them, search is exact, which is "
        "slow above 100,000 rows.",
    )
    listen_url: str | None = Field(
        None,
        description="PostgreSQL URL for the worker's LISTEN. Set it if HANSEI_WORKER_URL goes "
        "through a transaction pooler.",
    )
    statement_cache: int = Field(
        100,
        ge=0,
        description="Prepared statements cached per connection. Set 0 behind a transaction pooler.",
    )
    pool_size: int = Field(
        10, ge=1, le=200, description="Database connections per API or worker process."
    )
    database_timeout: float = Field(
        30,
        gt=0,
        description="Timeout of one statement and of the wait for a connection, in seconds. A "
        "request gets 503 after it. Statements of workers have 20 times as long.",
    )
    max_connections: int = Field(
        1_000,
        ge=1,
        description="Maximum open connections per API process. Requests above it get 503.",
    )
    rate_limit_key: str = Field(
        "30000/minute",
        description="Maximum requests per API key, such as 100/second or 5000/minute, or off. "
        "Requests above it get 429.",
    )
    rate_limit_tenant: str = Field(
        "60000/minute", description="Maximum requests per tenant, with all its API keys."
    )
    rate_limit_body_bytes: int = Field(
        4_000_000,
        ge=0,
        description="Bytes per second of the request bodies of a tenant, after a burst of 32 MiB. "
        "More are read later, not refused. 0: no limit.",
    )
    rate_limit_failed_keys: str = Field(
        "60/minute",
        description="Maximum requests with an unknown API key per client address (IPv6: per /64). "
        "Above it, unknown keys get 429; keys that worked before are not affected.",
    )
    data_dir: Path = Field(
        Path(".hansei"),
        description="Data directory of `hansei up`: embedded PostgreSQL and API key.",
    )
    worker_concurrency: int = Field(
        4,
        ge=1,
        le=256,
        description="Maximum concurrent runs of one tenant per worker process. All tenants "
        "together may have a quarter more, at least one more.",
    )
    queue_limit: int = Field(
        50_000,
        ge=1,
        description="Maximum queued runs per tenant. Requests above it get 429.",
    )
    queue_limit_total: int = Field(
        250_000,
        ge=1,
        description="Maximum queued runs of all tenants. Above it, requests of tenants with more "
        "than 1,000 queued runs get 429.",
    )
    lease_seconds: float = Field(
        30,
        gt=0,
        description="Lease of a run without a heartbeat, in seconds. After it, another worker may "
        "take over the run.",
    )
    run_timeout: float = Field(
        1_800,
        gt=0,
        description="Time of one attempt of a run, model calls included, in seconds. After it, the "
        "run fails. Maintenance, erasures, re-embedding and the loading of documents continue "
        "later.",
    )
    max_attempts: int = Field(
        5, ge=1, description="Attempts of a background run before its state is `dead`."
    )
    reflective_memory_enabled: bool = Field(
        True,
        validation_alias=_env("HANSEI_REFLECTIVE_MEMORY_ENABLED", "REFLECTIVE_MEMORY_ENABLED"),
        description="If false, traces are stored but not reflected on.",
    )
    reflective_memory_mode: Literal["full", "lite"] = Field(
        "full",
        validation_alias=_env("HANSEI_REFLECTIVE_MEMORY_MODE", "REFLECTIVE_MEMORY_MODE"),
        description="`lite` reflects on the traces that you send, except plain successes, and "
        "starts no reflection on a schedule: no dreaming, and session summaries only on request.",
    )
    llm_provider: Literal["openai", "azure", "anthropic", "bedrock", "none"] | None = Field(
        None,
        validation_alias=_env("HANSEI_LLM_PROVIDER", "LLM_PROVIDER"),
        description="LLM provider. If unset, chosen from the API keys present, in the order "
        "anthropic, openai, azure; without any key, only the rules engine runs.",
    )
    llm_model: str | None = Field(
        None,
        validation_alias=_env("HANSEI_LLM_MODEL", "LLM_MODEL", "RAE_LLM_MODEL_DEFAULT"),
        description="Model name, or several separated by commas as fallbacks in this order. If "
        "unset, gpt-4o-mini (openai) or claude-haiku-5-5 (anthropic).",
    )
    anthropic_model: str | None = Field(
        None,
        validation_alias=_env("HANSEI_ANTHROPIC_MODEL", "AGENTIC_CONTEXT_MODEL"),
        description="Model names of the provider anthropic, if HANSEI_LLM_MODEL is unset.",
    )
    llm_api: Literal["chat", "responses"] = Field(
        "chat", description="OpenAI API of the provider openai: chat completions or responses."
    )
    llm_timeout: float = Field(60, gt=0, description="Timeout of one model call, in seconds.")
    request_timeout: float = Field(
        60,
        gt=0,
        le=3600,
        description="Time of a request that waits for a model, in seconds, unless it sends "
        "`Prefer: wait=N`. All its model calls, retries and pauses end before it.",
    )
    llm_concurrency: int = Field(
        32, ge=1, description="Maximum concurrent model calls per process."
    )
    llm_max_tokens: int = Field(
        4096, ge=256, description="Maximum output tokens per model call, reasoning included."
    )
    llm_prompt_tokens: int = Field(
        24_000,
        ge=2_048,
        description="Maximum size of a trace and its evidence in a prompt, in estimated tokens.",
    )
    pii_redaction: str = Field(
        "off",
        description="Personal data that is replaced before storage and prompts: off, all, or some "
        "of email, phone, credit_card, iban, us_ssn, ip_address, separated by commas. Needs the "
        "extra `pii`. Names and postal addresses are not found.",
    )
    pii_phone_region: str | None = Field(
        None,
        pattern="^[A-Z]{2}$",
        description="Country of phone numbers without a country code, such as US or JP, for "
        "HANSEI_PII_REDACTION. If unset, only numbers that start with + are found.",
    )
    prompts_dir: Path | None = Field(
        None,
        description="Directory of custom prompts: NAME.txt, TENANT/NAME.txt or "
        "TENANT/PLAYBOOK/NAME.txt; the most specific file wins.",
    )
    sections_file: Path | None = Field(
        None,
        description="YAML file with the initial sections of new playbooks, by playbook name. If "
        "unset, the packaged config/sections.yaml.",
    )
    embedding_provider: Literal["static", "openai", "fastembed"] = Field(
        "static",
        description="Embedding provider of new tenants. API keys that are present do not change "
        "it. Use `hansei reembed` for existing tenants.",
    )
    embedding_model: str | None = Field(
        None,
        validation_alias=_env("HANSEI_EMBEDDING_MODEL", "EMBEDDING_MODEL"),
        description="Embedding model of new tenants. If unset, the provider's default.",
    )
    embedding_dimensions: int | None = Field(
        None, ge=8, le=1024, description="Vector length, for providers that can shorten vectors."
    )
    embedding_base_url: str | None = Field(
        None,
        description="Base URL of the embedding provider openai. If unset, HANSEI_OPENAI_BASE_URL.",
    )
    embedding_api_key: SecretStr | None = Field(
        None,
        description="API key for HANSEI_EMBEDDING_BASE_URL. If unset, HANSEI_OPENAI_API_KEY is "
        "used, but only for the same base URL.",
    )
    retrieval_retention_days: int = Field(
        90, ge=1, description="Retention of retrievals (searches and renders), in days."
    )
    run_retention_days: int = Field(
        400,
        ge=1,
        description="Retention of runs that ended, in days. Without its runs, analytics does not"
        " know for which trace and playbook a model call was made.",
    )
    memory_decay_rate: float = Field(
        0.01,
        ge=0,
        le=1,
        validation_alias=_env("HANSEI_MEMORY_DECAY_RATE", "MEMORY_DECAY_RATE"),
        description="Decay of the strength of unused memories, per day, for pruning. 0: none.",
    )
    prune_below: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Pruning archives unused memories whose importance × strength is below this.",
    )
    dreaming_lookback_hours: float = Field(
        24,
        gt=0,
        validation_alias=_env("HANSEI_DREAMING_LOOKBACK_HOURS", "DREAMING_LOOKBACK_HOURS"),
        description="Age of the episodes that dreaming reflects on, in hours.",
    )
    dreaming_min_importance: float = Field(
        0.6,
        ge=0,
        le=1,
        validation_alias=_env("HANSEI_DREAMING_MIN_IMPORTANCE", "DREAMING_MIN_IMPORTANCE"),
        description="Minimum importance of the episodes that dreaming reflects on.",
    )
    dreaming_max_samples: int = Field(
        20,
        ge=3,
        le=200,
        validation_alias=_env("HANSEI_DREAMING_MAX_SAMPLES", "DREAMING_MAX_SAMPLES"),
        description="Maximum number of episodes per project that dreaming reflects on.",
    )
    search_alpha: float = Field(
        0.5,
        ge=0,
        le=1,
        validation_alias=_env("HANSEI_SEARCH_ALPHA", "SEARCH_ALPHA"),
        description="Default weight of the vector score in `fusion: minmax`.",
    )
    playbook_data_dir: Path = Field(
        Path("data/playbooks"),
        validation_alias=_env("HANSEI_PLAYBOOK_DATA_DIR", "PLAYBOOK_DATA_DIR"),
        description="Directory of the library's `PlaybookStore` (JSON files). The service uses the "
        "database.",
    )
    openai_api_key: SecretStr | None = Field(
        None,
        validation_alias=_env("HANSEI_OPENAI_API_KEY", "OPENAI_API_KEY"),
        description="API key of OpenAI or a compatible server.",
    )
    openai_base_url: str | None = Field(
        None,
        validation_alias=_env("HANSEI_OPENAI_BASE_URL", "OPENAI_BASE_URL"),
        description="Base URL of a server compatible with OpenAI.",
    )
    anthropic_api_key: SecretStr | None = Field(
        None,
        validation_alias=_env(
            "HANSEI_ANTHROPIC_API_KEY", "AGENTIC_CONTEXT_API_KEY", "ANTHROPIC_API_KEY"
        ),
        description="API key of Anthropic or a compatible server.",
    )
    anthropic_base_url: str | None = Field(
        None,
        validation_alias=_env(
            "HANSEI_ANTHROPIC_BASE_URL", "AGENTIC_CONTEXT_BASE_URL", "ANTHROPIC_BASE_URL"
        ),
        description="Base URL of a server compatible with Anthropic.",
    )
    azure_api_key: SecretStr | None = Field(
        None,
        validation_alias=_env("HANSEI_AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        description="API key of an Azure OpenAI resource. HANSEI_LLM_MODEL is the deployment name.",
    )
    azure_endpoint: str | None = Field(
        None,
        validation_alias=_env("HANSEI_AZURE_ENDPOINT", "AZURE_OPENAI_ENDPOINT"),
        description="Endpoint URL of the Azure OpenAI resource.",
    )
    budget_webhook_url: str | None = Field(
        None,
        description="URL that budget alerts (80, 90, 95 %) are sent to by POST. Needs "
        "HANSEI_BUDGET_WEBHOOK_SECRET.",
    )
    budget_webhook_secret: SecretStr | None = Field(
        None,
        description="Key of the signature of budget alerts (Standard Webhooks, HMAC-SHA256), at "
        "least 16 characters.",
    )
    webhook_allow_private: bool = Field(
        False, description="Allow webhooks to private and loopback addresses."
    )
    metrics_token: SecretStr | None = Field(
        None,
        min_length=16,
        description="Bearer token of `GET /metrics`, at least 16 characters. If unset, only "
        "clients on the loopback address may read the metrics.",
    )
    worker_metrics_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port on which a worker serves `/metrics`: on all addresses if "
        "HANSEI_METRICS_TOKEN is set, else on 127.0.0.1. If unset, on none.",
    )
    otel_endpoint: str | None = Field(
        None,
        validation_alias=_env("HANSEI_OTEL_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="Base URL of an OTLP/HTTP receiver for OpenTelemetry traces, such as "
        "http://localhost:4318. Needs the extra `otel`. If unset, tracing is off.",
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="Log format: readable lines or JSON."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum level of logged events."
    )

    @field_validator("pii_redaction")
    @classmethod
    def _check_pii_redaction(cls, value: str) -> str:
        parse_kinds(value)
        return value

    @field_validator("budget_webhook_secret")
    @classmethod
    def _check_webhook_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < MIN_SECRET_LENGTH:
            raise ValueError(f"must have at least {MIN_SECRET_LENGTH} characters")
        return value

    @field_validator("rate_limit_key", "rate_limit_tenant", "rate_limit_failed_keys")
    @classmethod
    def _check_rate_limit(cls, value: str) -> str:
        parse_rate_limit(value)
        return value

    @classmethod
    def load(cls, **overrides: Any) -> Settings:
        """Read the settings from the environment. `overrides` take precedence."""
        return cls(**overrides)
