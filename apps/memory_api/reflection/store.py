"""Keeping a reflection: two rows (what happened, what to do), and a witness where somebody said it
before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.memory.find import Question, search
from apps.memory_api.memory.prepare import Draft, Prepared
from apps.memory_api.memory.put import make_room, put
from apps.memory_api.memory.queries import Link, add_witness, find_same, link
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.scopes import Address, find_scopes, one_at_a_time
from apps.memory_api.reflection.schemas import ReflectionContext, ReflectionResult

SOURCE = "reflection_engine_v2"
STRATEGY_BOOST = 1.1
SAME_COSINE = 0.97
SAME_TERMS = 0.9
"""Two texts say the same when they are this close in both: cosine, and the share of indexed terms
in common.
"""


@dataclass(frozen=True)
class Kept:
    """Where a text is remembered; `new` is False when it became a witness of a memory that was
    there.
    """

    memory_id: UUID
    new: bool


def drafts(
    result: ReflectionResult,
    *,
    project_id: str,
    session_id: str | None = None,
    context: ReflectionContext | None = None,
    trace_id: UUID | None = None,
    run_id: UUID | None = None,
) -> list[Draft]:
    """The rows of a reflection: itself, and its strategy with tag `strategy` and a tenth more
    importance (at most 1).
    """
    reflection = Draft(
        kind=Kind.REFLECTION,
        project_id=project_id,
        content=result.reflection_text,
        tags=result.tags,
        importance=result.importance,
        confidence=result.confidence,
        source=SOURCE,
        error_category=result.error_category.value if result.error_category else None,
        outcome=context.outcome.value if context else result.metadata.get("outcome"),
        session_id=session_id,
        trace_id=trace_id,
        source_event_ids=result.source_event_ids,
        metadata=result.metadata,
        actor=f"engine:{SOURCE}",
        run_id=run_id,
    )
    if not result.strategy_text:
        return [reflection]
    strategy = Draft(
        kind=Kind.STRATEGY,
        content=result.strategy_text,
        tags=[*(tag for tag in result.tags if tag != "strategy"), "strategy"][-64:],
        importance=min(1.0, result.importance * STRATEGY_BOOST),
        **{
            name: getattr(reflection, name)
            for name in (
                "project_id",
                "confidence",
                "source",
                "error_category",
                "outcome",
                "session_id",
                "trace_id",
                "source_event_ids",
                "metadata",
                "actor",
                "run_id",
            )
        },
    )
    return [reflection, strategy]


async def keep(
    session: AsyncSession,
    items: Sequence[Prepared],
    *,
    beside: Sequence[Prepared] = (),
    witness: bool = True,
) -> list[Kept]:
    """Write what is new; what was said before gains a `witness`. Both are linked to the trace they
    come from. What stands `beside` them is written as it is, and not answered.

    One transaction of a project at a time goes past here, so the sooner it ends the better.
    """
    await make_room(session, items)
    for project_id in sorted({item.draft.project_id for item in items}):
        await one_at_a_time(session, f"lessons {project_id}")  # the same may be said beside us
    kept: list[Kept] = []
    same = await _word_for_word(session, items)
    new = [*beside]
    for item in items:
        if any(item.draft.scope_address == other.draft.scope_address for other in new):
            await put(session, new)  # so that the next of its kind is compared with it
            new = []
        known = same.get(_saying(item)) or await _nearly(session, item)
        if known is None:
            new.append(item)
        memory_id = known or item.draft.id
        same[_saying(item)] = memory_id
        kept.append(Kept(memory_id, new=known is None))
    if new:
        await put(session, new)
    if witness:
        await add_witness(session, {k.memory_id for k in kept if not k.new})
    await link(
        session,
        (
            Link(k.memory_id, "derived_from", "trace", item.draft.trace_id)
            for k, item in zip(kept, items, strict=True)
            if item.draft.trace_id is not None
        ),
    )
    return kept


Saying = tuple[Address, bytes]
"""Where a text is kept, and its fingerprint."""


def _saying(item: Prepared) -> Saying:
    return item.draft.scope_address, item.fingerprint


async def _word_for_word(session: AsyncSession, items: Sequence[Prepared]) -> dict[Saying, UUID]:
    """Those memories of the same project and kind that say exactly one of these."""
    scopes = await find_scopes(session, {item.draft.scope_address for item in items})
    addresses = {scope: address for address, scope in scopes.items()}
    asked = {(scopes[at], said) for at, said in map(_saying, items) if at in scopes}
    found = await find_same(session, asked)
    return {(addresses[scope], said): identity for (scope, said), identity in found.items()}


async def _nearly(session: AsyncSession, item: Prepared) -> UUID | None:
    """The memory of the same project and kind that says this in nearly the same words."""
    address = item.draft.scope_address
    question = Question(item.model, item.vector, {})
    if question.is_empty:
        return None
    for hit in await search(session, question, [address], top_k=1):
        close = (hit.cosine or 0) >= SAME_COSINE
        if close and _overlap(item.weights, hit.memory.terms) >= SAME_TERMS:
            return hit.memory.id
    return None


def _overlap(left: Iterable[int], right: Iterable[int]) -> float:
    """Jaccard similarity of two sets of terms, 0..1."""
    a, b = set(left), set(right)
    return len(a & b) / len(a | b) if a | b else 0.0
