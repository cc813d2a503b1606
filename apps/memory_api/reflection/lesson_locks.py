"""Locks of lessons that are saved: only transactions that may save the same lesson wait for each
other.

Two lessons are the same if they share 90 % of their terms. Then each has at least one of its first
terms in common with the other, in any order of all terms: of n terms, the first n − ⌊.9 n⌋ + 1 are
enough (the prefix filter of set similarity joins). So a transaction locks these. Words that many
lessons contain come last in the order, because lessons that share only these need not wait.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.memories.index.drafts import PreparedMemory
from memory_api.memories.index.scopes import acquire_tenant_locks
from memory_api.text.terms import document_weights

MIN_TERM_OVERLAP = 0.9
"""The share of indexed terms in common (Jaccard) that two texts of the same lesson reach."""
LOCKS_PER_SCOPE = 1024
"""Terms share so many locks, so that a long text does not take all that the server has."""

_COMMON_WORDS = """
call task id before user outcome agent made expected failure only change detail get update request
number attempt each response return one previous may first success error value need argument fail
earlier take name search wrong answer date list without cancel were order contain rule last check
same use although run so message amount after say refuse two report ask total page like miss all
tool calculate origin read can method instead them item end open part compare cannot state other
look again finish output new found up file modify phrase some want another help several could direct
make time day show count more way offer reply type 1 2 3
"""
COMMON_TERMS = frozenset(
    document_weights(_COMMON_WORDS + " ".join(f"e{number:04d}" for number in range(40)))
)
"""Terms that many reflections and strategies contain, among them the IDs of the first events."""


def term_overlap(left: Collection[int], right: Collection[int]) -> float:
    """Jaccard similarity of two sets of terms, 0 to 1."""
    a, b = set(left), set(right)
    return len(a & b) / len(a | b) if a | b else 0.0


def lock_names(lesson: PreparedMemory) -> set[str]:
    """Names of locks; the same lesson, in the same or in other words, has one of them, too."""
    terms = sorted(lesson.weights, key=lambda term: (term in COMMON_TERMS, term))
    first = terms[: len(terms) - int(MIN_TERM_OVERLAP * len(terms)) + 1]
    parts = [f"{term % LOCKS_PER_SCOPE}" for term in first] + [lesson.fingerprint.hex()]
    scope = "/".join(lesson.draft.scope_address)
    return {f"lesson {scope}/{part}" for part in parts}


async def lock_lessons(session: AsyncSession, lessons: Sequence[PreparedMemory]) -> None:
    """Wait until no other transaction saves one of these lessons. Locks all at once, in one order,
    so take them together and before the memories of known lessons.
    """
    await acquire_tenant_locks(session, set[str]().union(*map(lock_names, lessons)))
