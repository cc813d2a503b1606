"""`hansei doctor` on what search stands on, tenant by tenant: embedding models and moves between
them, tokenisers, vector indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from apps.memory_api.commands.finding import Finding
from apps.memory_api.embeddings.port import EmbedderFailed
from apps.memory_api.embeddings.queries import list_models, seconds_left
from apps.memory_api.embeddings.tables import EmbeddingModel
from apps.memory_api.memory.terms import find_tokenizers
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.queries import active_tenants
from apps.memory_api.text.tokens import TOKENIZER
from apps.memory_api.workers import reembed
from apps.memory_api.workers.index import missing_indexes
from apps.memory_api.workers.queries import open_run
from apps.memory_api.workers.retokenise import is_older

MOST = 200
"""Tenants that are looked at."""
OVERDUE = timedelta(hours=1)
"""After which old vectors should be gone."""


@dataclass
class Looked:
    """What all tenants say together."""

    tenants: int = 0
    active: Counter[str] = field(default_factory=Counter[str])
    unloadable: dict[str, str] = field(default_factory=dict[str, str])
    moves: list[str] = field(default_factory=list[str])
    stuck: list[str] = field(default_factory=list[str])
    overdue: list[str] = field(default_factory=list[str])
    older: int = 0
    newer: int = 0
    unindexed: int = 0


async def look_at_memories(
    runtime: Runtime, tenants: Sequence[UUID] | None = None
) -> Sequence[Finding]:
    """Three findings: embedding models, tokenisers, vector indexes; of all tenants, for which
    `runtime` is the worker's, or of some.
    """
    if tenants is None:
        async with runtime.sessions.shared() as session:
            tenants = await active_tenants(session)
    looked = Looked()
    for tenant_id in tenants[:MOST]:
        await _look(runtime, tenant_id, looked)
    return [_models(looked, len(tenants)), _terms(looked), _indexes(looked, runtime)]


async def _look(runtime: Runtime, tenant_id: UUID, looked: Looked) -> None:
    looked.tenants += 1
    async with runtime.sessions.tenant(tenant_id) as session:
        for model in await list_models(session):
            if model.state == "active":
                looked.active[model.label] += 1
                await _load(runtime, model, looked)
            elif model.state == "filling":
                run = await open_run(session, reembed.KIND)
                told = f"{tenant_id} to {model.label}"
                if run is None:
                    looked.stuck.append(told)
                else:
                    looked.moves.append(told + _far(run.result))
            elif not await seconds_left(session, model, OVERDUE):
                looked.overdue.append(f"{model.label} of {tenant_id}")
        used = await find_tokenizers(session)
        looked.older += any(is_older(one) for one in used)
        looked.newer += any(one != TOKENIZER and not is_older(one) for one in used)
    looked.unindexed += len(await missing_indexes(runtime.sessions, tenant_id))


async def _load(runtime: Runtime, model: EmbeddingModel, looked: Looked) -> None:
    if model.label not in looked.unloadable:
        try:
            await runtime.models.embedders.load(model)
        except EmbedderFailed as error:
            looked.unloadable[model.label] = str(error)


def _far(result: dict[str, Any] | None) -> str:
    return f" ({result['done']} of {result['total']})" if result else ""


def _models(looked: Looked, tenants: int) -> Finding:
    many = ", ".join(f"{count} × {label}" for label, count in looked.active.most_common())
    found = many or "no tenant has memories yet"
    if tenants > looked.tenants:
        found += f" (of {tenants} tenants, {looked.tenants} were looked at)"
    if looked.moves:
        found += f"; moving: {', '.join(looked.moves)}"
    for wrong, mend in (
        (list(looked.unloadable.values()), "Give this process what that model needs."),
        (looked.stuck, "A move stopped: run `hansei reembed` again, or with --cancel."),
        (looked.overdue, "Old vectors wait to be removed: start a worker (`hansei worker`)."),
    ):
        if wrong:
            return Finding("embeddings", False, f"{found}; {'; '.join(wrong)}", mend)
    return Finding("embeddings", True, found)


def _terms(looked: Looked) -> Finding:
    if looked.newer:
        found = f"{looked.newer} tenants were indexed by a later release than this one"
        return Finding("tokeniser", False, found, "Bring this release up to date.")
    if looked.older:
        found = f"{looked.older} tenants are being indexed again by {TOKENIZER}"
        return Finding("tokeniser", True, found, "A worker does it, a part every five minutes.")
    return Finding("tokeniser", True, TOKENIZER)


def _indexes(looked: Looked, runtime: Runtime) -> Finding:
    if not looked.unindexed:
        return Finding("indexes", True, "every large scope has its vector index")
    found = f"{looked.unindexed} large scopes are searched without a vector index, exactly"
    if runtime.settings.owner_url is None:
        return Finding("indexes", False, found, "Give the worker HANSEI_OWNER_URL: it makes them.")
    return Finding("indexes", True, found, "A worker makes them, within minutes to an hour.")
