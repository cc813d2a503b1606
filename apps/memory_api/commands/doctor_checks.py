"""The checks of `hansei doctor` on search (embedding models and moves between them, tokenizers,
vector indexes) and on the model provider.

The provider check requests the list of models, which costs nothing. Keys are never shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from memory_api.auth.queries import list_active_tenant_ids
from memory_api.core.settings import Settings
from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.embeddings.queries import list_embedding_models, seconds_until
from memory_api.embeddings.registry import EmbedderSpec, spec_of_model
from memory_api.embeddings.tables import EmbeddingModelRow
from memory_api.llm.errors import LLMAuthenticationFailed, LLMBadRequest, LLMError
from memory_api.llm.port import LLM, ModelLister
from memory_api.llm.registry import open_configured_models, selected_provider
from memory_api.maintenance import reembedding
from memory_api.maintenance.queries import get_open_run
from memory_api.maintenance.reindexing import is_outdated
from memory_api.maintenance.vector_indexes import CREATE_ABOVE_ROWS, missing_indexes
from memory_api.memories.index.reindex import find_tokenizers
from memory_api.runtime import Runtime
from memory_api.text.terms import TOKENIZER_VERSION


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. `fix` says what to do, if there is something to do."""

    name: str
    ok: bool
    message: str
    fix: str = ""


MAX_CHECKED_TENANTS = 200
MOVE_OVERDUE = timedelta(hours=1)
"""Time after a move by which the old vectors should be deleted."""


@dataclass
class TenantChecks:
    """The findings of all checked tenants."""

    tenant_count: int = 0
    active_models: Counter[str] = field(default_factory=Counter[str])
    """Number of tenants by model label."""
    tried_models: set[EmbedderSpec] = field(default_factory=set[EmbedderSpec])
    model_errors: dict[str, str] = field(default_factory=dict[str, str])
    """Error message by model label."""
    running_moves: list[str] = field(default_factory=list[str])
    waiting_moves: list[str] = field(default_factory=list[str])
    """Moves whose last attempt failed, with its error."""
    stopped_moves: list[str] = field(default_factory=list[str])
    overdue_deletions: list[str] = field(default_factory=list[str])
    older_tokenizer_count: int = 0
    newer_tokenizer_count: int = 0
    missing_index_count: int = 0


async def check_memories(
    runtime: Runtime, tenants: Sequence[UUID] | None = None
) -> Sequence[CheckResult]:
    """Return three results: embedding models, tokenizer and vector indexes.

    Without `tenants`, checks all active tenants; `runtime` must then have the worker role.
    """
    if tenants is None:
        async with runtime.sessions.without_tenant() as session:
            tenants = await list_active_tenant_ids(session)
    checks = TenantChecks()
    for tenant_id in tenants[:MAX_CHECKED_TENANTS]:
        await _check_tenant(runtime, tenant_id, checks)
    return [
        _embeddings_result(checks, len(tenants)),
        _tokenizer_result(checks),
        _indexes_result(checks, runtime),
    ]


async def _check_tenant(runtime: Runtime, tenant_id: UUID, checks: TenantChecks) -> None:
    checks.tenant_count += 1
    active: EmbeddingModelRow | None = None
    async with runtime.sessions.for_tenant(tenant_id) as session:
        for model in await list_embedding_models(session):
            if model.state == "active":
                checks.active_models[model.label] += 1
                active = model
            elif model.state == "filling":
                run = await get_open_run(session, reembedding.KIND)
                move = f"{tenant_id} to {model.label}"
                if run is None:
                    checks.stopped_moves.append(move)
                elif run.state == "queued" and run.error:
                    error = run.error.get("message", "its last attempt failed")
                    checks.waiting_moves.append(f"{move}{_format_progress(run.result)}: {error}")
                else:
                    checks.running_moves.append(move + _format_progress(run.result))
            elif not await seconds_until(session, model, MOVE_OVERDUE):
                checks.overdue_deletions.append(f"{model.label} of {tenant_id}")
        versions = await find_tokenizers(session)
        checks.older_tokenizer_count += any(is_outdated(version) for version in versions)
        checks.newer_tokenizer_count += any(
            version != TOKENIZER_VERSION and not is_outdated(version) for version in versions
        )
    checks.missing_index_count += len(await missing_indexes(runtime.sessions, tenant_id))
    if active is not None:
        await _try_model(runtime, active, checks)


async def _try_model(runtime: Runtime, model: EmbeddingModelRow, checks: TenantChecks) -> None:
    """Embed a text, once with each model: every search of its tenants does."""
    spec = spec_of_model(model)
    if spec in checks.tried_models:
        return
    checks.tried_models.add(spec)
    try:
        embedder = await runtime.embedding_models.embedder_cache.load(model)
        await embedder.embed_query("connection test")
    except EmbedderUnavailable as error:
        checks.model_errors[model.label] = str(error)


def _format_progress(result: dict[str, Any] | None) -> str:
    return f" ({result['done']} of {result['total']})" if result else ""


def _embeddings_result(checks: TenantChecks, total_tenant_count: int) -> CheckResult:
    counts = [f"{count} × {label}" for label, count in checks.active_models.most_common()]
    message = ", ".join(counts) or "no tenant has memories yet"
    if total_tenant_count > checks.tenant_count:
        message += f" (checked {checks.tenant_count} of {total_tenant_count} tenants)"
    if checks.running_moves:
        message += f"; moving: {', '.join(checks.running_moves)}"
    problems_and_fixes = (
        (
            list(checks.model_errors.values()),
            "Provide what the message names: a package, a key, or a provider that answers.",
        ),
        (
            [f"waiting move: {move}" for move in checks.waiting_moves],
            "Remove the cause; the move then continues. Or cancel it: `hansei reembed --cancel`.",
        ),
        (
            [f"stopped move: {move}" for move in checks.stopped_moves],
            "Run `hansei reembed` again, or cancel the move with --cancel.",
        ),
        (
            [f"old vectors not deleted: {model}" for model in checks.overdue_deletions],
            "Start a worker with `hansei worker`. It deletes the old vectors.",
        ),
    )
    for problems, fix in problems_and_fixes:
        if problems:
            return CheckResult("embeddings", False, f"{message}; {'; '.join(problems)}", fix)
    return CheckResult("embeddings", True, message)


def _tokenizer_result(checks: TenantChecks) -> CheckResult:
    if checks.newer_tokenizer_count:
        message = f"{checks.newer_tokenizer_count} tenants are indexed by a newer release"
        return CheckResult("tokenizer", False, message, "Upgrade this installation.")
    if checks.older_tokenizer_count:
        message = f"{checks.older_tokenizer_count} tenants are being reindexed"
        fix = f"No action needed: the worker reindexes them with {TOKENIZER_VERSION}."
        return CheckResult("tokenizer", True, message, fix)
    return CheckResult("tokenizer", True, TOKENIZER_VERSION)


def _indexes_result(checks: TenantChecks, runtime: Runtime) -> CheckResult:
    if not checks.missing_index_count:
        large = f"above {CREATE_ABOVE_ROWS:,} entries"
        message = f"every playbook and collection {large} has a vector index"
        return CheckResult("indexes", True, message)
    message = f"{checks.missing_index_count} large scopes have no vector index yet"
    if runtime.settings.owner_url is None:
        fix = "Set HANSEI_OWNER_URL for the worker, so that it can create them."
        return CheckResult("indexes", False, message, fix)
    fix = "No action needed: the worker creates them within an hour."
    return CheckResult("indexes", True, message, fix)


MODEL_CHECK = "model"
PROVIDER_TIMEOUT_SECONDS = 10.0


async def check_model(settings: Settings) -> CheckResult:
    """Check the first configured model. The others have the same provider."""
    provider = selected_provider(settings)
    models = open_configured_models(settings)
    try:
        if not models:
            message = "no model is configured; only the rules engine runs, and finds less"
            fix = "Set the key of a provider, such as OPENAI_API_KEY."
            return CheckResult(MODEL_CHECK, True, message, fix)
        if provider == "bedrock" or not isinstance(models[0], ModelLister):
            message = f"{provider} {models[0].model}; not checked, because a call has a cost"
            return CheckResult(MODEL_CHECK, True, message)
        return await _check_provider(models[0], models[0])
    finally:
        for model in models:
            await model.aclose()


async def _check_provider(llm: LLM, lister: ModelLister) -> CheckResult:
    name = f"{llm.provider} {llm.model} at {llm.endpoint}"
    try:
        listed_models = await lister.list_models(PROVIDER_TIMEOUT_SECONDS)
    except LLMAuthenticationFailed:
        variables = {"anthropic": "ANTHROPIC_API_KEY", "azure": "AZURE_OPENAI_API_KEY"}
        fix = f"Set {variables.get(llm.provider, 'OPENAI_API_KEY')} to a valid key."
        return CheckResult(MODEL_CHECK, False, f"{name}: the API key was rejected", fix)
    except LLMBadRequest:  # some servers cannot list models
        return CheckResult(MODEL_CHECK, True, f"{name}: reachable")
    except LLMError as error:
        fix = (
            "Check the base URL and the network connection."
            " Until this is fixed, the rules engine is used."
        )
        return CheckResult(MODEL_CHECK, False, f"{name}: {error.code}: {error}", fix)
    message = f"{name}: reachable, and the API key is accepted"
    return CheckResult(MODEL_CHECK, True, message, _model_hint(llm.model, listed_models))


def _model_hint(model: str, listed_models: Sequence[str]) -> str:
    """A hint and not an error: the provider may not list aliases of a model."""
    if not listed_models or any(name.startswith(model) for name in listed_models):
        return ""
    return f"The provider does not list '{model}'. Check HANSEI_LLM_MODEL."
