"""The parts that every process shares: one frozen `Runtime`, which `bootstrap.py` builds."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID

from memory_api.core.db import Sessions
from memory_api.core.errors import InvalidRequest
from memory_api.core.ids import new_id, to_tenant_id
from memory_api.core.settings import Settings
from memory_api.embeddings.port import Embedder
from memory_api.embeddings.tenant_models import TenantEmbedder, TenantEmbeddingModels
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.model_session import ModelSession
from memory_api.llm.port import LLM
from memory_api.llm.prompts import Prompt, load_prompt
from memory_api.llm.wrappers import MeteredLLM
from memory_api.run_queue.figures import QueueGauge
from memory_api.run_queue.port import RunQueue
from memory_api.run_queue.upkeep_schedule import UpkeepSchedule


def _host_and_pid() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


@dataclass(frozen=True)
class Runtime:
    settings: Settings
    sessions: Sessions
    default_embedder: Embedder
    """The embedder of new tenants. For an existing tenant, use `get_tenant_embedder`."""
    embedding_models: TenantEmbeddingModels
    queue: RunQueue
    queue_gauge: QueueGauge
    upkeep_schedule: UpkeepSchedule
    circuit_breakers: CircuitBreakers
    """Pause each model of `llm` while it fails."""
    llm: LLM | None = None
    """The configured models with all wrappers; None if only the rules engine runs."""
    process_name: str = field(default_factory=_host_and_pid)
    """Host and process ID. Lease holders start with it."""

    async def get_tenant_embedder(self, tenant_id: UUID) -> TenantEmbedder:
        """The embedder of the tenant's queries and memories. Opens a transaction of its own, so
        call it outside any other.
        """
        return await self.embedding_models.get_embedder(tenant_id)

    def new_lease_holder(self) -> str:
        """A unique name under which this process leases one run."""
        return f"{self.process_name}/{new_id()}"

    @property
    def lease_duration(self) -> timedelta:
        return timedelta(seconds=self.settings.lease_seconds)

    @property
    def curation_interval(self) -> timedelta:
        return timedelta(seconds=self.settings.curation_interval)


def open_model_session(
    runtime: Runtime,
    tenant_id: UUID,
    playbook: str | None,
    run_id: UUID | None,
    *,
    project_id: str | None = None,
    prompt_tokens: int | None = None,
    fallback_to_rules: bool = False,
) -> ModelSession | None:
    """Return the configured model with the prompts of this playbook; None if only the rules engine
    runs. `project_id` is the project that pays. The model adds up its usage.
    """
    if runtime.llm is None:
        return None
    settings = runtime.settings

    def prompt(name: str) -> Prompt:
        return load_tenant_prompt(settings, name, tenant_id, playbook)

    return ModelSession(
        MeteredLLM(runtime.llm),
        prompt,
        timeout=settings.llm_timeout,
        max_tokens=settings.llm_max_tokens,
        prompt_tokens=prompt_tokens or settings.llm_prompt_tokens,
        fallback_to_rules=fallback_to_rules,
        tenant_id=tenant_id,
        project_id=project_id,
        run_id=run_id,
    )


def load_tenant_prompt(
    settings: Settings, name: str, tenant_id: UUID | None, playbook: str | None
) -> Prompt:
    """Load the prompt that applies to a tenant and a playbook. Raises `PromptInvalid`."""
    directory = settings.prompts_dir
    return load_prompt(
        name,
        tenant=_tenant_names(directory, tenant_id) if tenant_id else None,
        playbook=playbook,
        operator_dir=directory,
    )


def _tenant_names(directory: Path | None, tenant_id: UUID) -> list[str]:
    """The tenant's ID, and its slug if the folder of custom prompts has one of that name: a slug
    gives the ID.
    """
    names = [str(tenant_id)]
    if directory is not None and directory.is_dir():
        for folder in directory.iterdir():
            slug = unquote(folder.name)
            with suppress(InvalidRequest):
                if folder.is_dir() and slug not in names and to_tenant_id(slug) == tenant_id:
                    names.append(slug)
    return names
