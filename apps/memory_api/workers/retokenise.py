"""A new tokeniser indexes again what an older one indexed, in batches, while search goes on.

A row's `tokenizer` says what indexed it. What a newer release wrote is left alone, so that two
releases that run side by side for a while do not undo each other's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import structlog

from apps.memory_api.memory.prepare import heaviest
from apps.memory_api.memory.terms import Indexed, find_indexed, find_tokenizers, index_again
from apps.memory_api.runtime import Runtime
from apps.memory_api.text.tokens import TOKENIZER, document_weights

log = structlog.get_logger()

BATCH = 500
"""Memories indexed again in one transaction."""
MOST = 100
"""Batches of one round of upkeep; the next goes on."""


async def retokenise(runtime: Runtime, tenant_id: UUID) -> int:
    """Index again what older tokenisers indexed; answers how many memories. 0 when all are up to
    date, which costs one look at an index.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        old = [found for found in await find_tokenizers(session) if is_older(found)]
    done = 0
    for tokenizer in old:
        for _ in range(MOST):
            async with runtime.sessions.tenant(tenant_id) as session:
                rows = await find_indexed(session, tokenizer, BATCH)
            if not rows:
                break
            weights = await asyncio.to_thread(_weigh, rows)
            async with runtime.sessions.tenant(tenant_id) as session:
                done += await index_again(session, tokenizer, TOKENIZER, rows, weights)
    if done:
        log.info("retokenised", tenant_id=str(tenant_id), memories=done, by=TOKENIZER)
    return done


def is_older(tokenizer: str, now: str = TOKENIZER) -> bool:
    """Whether what it indexed is to be indexed again by `now`: anything but a later version of the
    same name.
    """
    name, _, version = tokenizer.rpartition("/")
    our_name, _, our_version = now.rpartition("/")
    if tokenizer == now:
        return False
    return name != our_name or not version.isdecimal() or int(version) < int(our_version)


def _weigh(rows: Sequence[Indexed]) -> dict[int, dict[int, float]]:
    return {row.n: heaviest(document_weights(row.text)) for row in rows}
