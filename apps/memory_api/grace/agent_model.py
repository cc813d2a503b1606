"""The model as the agent uses it: prompts of the tenant, limits, and the usage of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel

from memory_api.core.errors import HanseiError
from memory_api.grace.config import GraceConfig
from memory_api.llm.model_session import ModelSession
from memory_api.llm.prompts import split_cacheable_prefix
from memory_api.llm.structured_output import request_structured, schema_text
from memory_api.llm.wrappers import MeteredLLM
from memory_api.runtime import Runtime, open_model_session

M = TypeVar("M", bound=BaseModel)


class RunOverLimit(HanseiError):
    """The agent run has used its tokens or its cost."""

    status, code = 402, "budget_spent"


@dataclass
class RunUsage:
    """What a run may still use. A cost limit of 0 does not limit."""

    tokens: int = 0
    cost_usd: float = 0.0

    def check(self, config: GraceConfig) -> None:
        """Raises `RunOverLimit`."""
        limits = config.executor
        if limits.max_tokens_per_run and self.tokens >= limits.max_tokens_per_run:
            raise RunOverLimit(
                f"The run has used its {limits.max_tokens_per_run:,} tokens"
                " (GRACE_EXECUTOR_MAX_TOKENS_PER_RUN)."
            )
        if limits.max_cost_usd_per_run and self.cost_usd >= limits.max_cost_usd_per_run:
            raise RunOverLimit(
                f"The run has used its {limits.max_cost_usd_per_run:.2f} US dollars"
                " (GRACE_EXECUTOR_MAX_COST_USD_PER_RUN)."
            )


@dataclass
class AgentModel:
    """A model for the steps of one run. It counts what they use."""

    session: ModelSession
    llm: MeteredLLM
    config: GraceConfig
    used_before: RunUsage

    async def ask(
        self,
        model_class: type[M],
        prompt: str,
        values: Mapping[str, str],
        *,
        temperature: float | None = None,
        omit: frozenset[str] = frozenset(),
    ) -> M:
        """A typed answer to the prompt of this name, without the fields in `omit`. Raises an
        `LLMError` or `RunOverLimit`.
        """
        self.usage.check(self.config)
        template = self.session.prompt(f"grace/{prompt}")
        rendered = split_cacheable_prefix(
            template.text, {"schema": schema_text(model_class), **values}
        )
        request = self.session.request(
            rendered.messages,
            cache_prefix=rendered.cache_prefix,
            purpose=f"grace_{prompt}",
            prompt_hash=template.hash,
        )
        request = replace(request, temperature=temperature, max_tokens=self.config.llm.max_tokens)
        value, _ = await request_structured(self.llm, model_class, request, omit=omit)
        return value

    @property
    def has_unknown_cost(self) -> bool:
        """Whether a call of this model has no known price, so that the cost limit cannot hold."""
        own: dict[str, Any] = self.llm.usage() or {"usd": 0.0}
        return own["usd"] is None

    @property
    def usage(self) -> RunUsage:
        """What the run has used up to now."""
        own: dict[str, Any] = self.llm.usage() or {}
        return RunUsage(
            self.used_before.tokens + own.get("input_tokens", 0) + own.get("output_tokens", 0),
            self.used_before.cost_usd + (own.get("usd") or 0.0),
        )


def open_agent_model(
    runtime: Runtime,
    config: GraceConfig,
    tenant_id: UUID,
    project_id: str,
    playbook: str | None,
    run_id: UUID,
    used: RunUsage,
) -> AgentModel | None:
    """The configured model; None if only the rules run."""
    session = open_model_session(runtime, tenant_id, playbook, run_id, project_id=project_id)
    return None if session is None else AgentModel(session, MeteredLLM(session.llm), config, used)
