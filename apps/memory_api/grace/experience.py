"""Execution memory: which collection worked for similar questions. A query over finished runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.grace import queries
from memory_api.grace.queries import FinishedAgentRun
from memory_api.text.terms import query_terms

MAX_RUNS = 200
"""Finished runs that are looked at, newest first."""
MIN_SIMILARITY = 0.2
"""Share of the words that two questions must have in common."""
MIN_RECORDS = 3
MIN_PRIOR = 0.6


@dataclass(frozen=True)
class Experience:
    """How runs with similar questions went with one collection."""

    collection: str
    record_count: int
    prior: float
    """Laplace-smoothed share of successes × mean confidence, 0 to 1."""

    @property
    def is_reliable(self) -> bool:
        return self.record_count >= MIN_RECORDS and self.prior >= MIN_PRIOR

    def describe(self) -> str:
        return (
            f"collection {self.collection}: {self.record_count} similar questions,"
            f" prior {self.prior:.2f}"
        )


async def find_experience(session: AsyncSession, project_id: str, query: str) -> list[Experience]:
    """The experience with each collection, best first."""
    runs = await queries.load_experience(session, project_id, MAX_RUNS)
    return weigh_experience(query, runs)


def weigh_experience(query: str, runs: Sequence[FinishedAgentRun]) -> list[Experience]:
    terms = _terms_of(query)
    records: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for run in runs:
        theirs = _terms_of(run.query)
        either = terms | theirs
        if not either or len(terms & theirs) / len(either) < MIN_SIMILARITY:
            continue
        success = run.feedback == "right" or (run.feedback is None and run.status == "success")
        for name in run.collections:
            records[name].append((success, run.confidence or 0.0))
    found = [_weigh(name, each) for name, each in records.items()]
    return sorted(found, key=lambda each: (-each.prior, each.collection))


@lru_cache(maxsize=5 * MAX_RUNS)
def _terms_of(query: str) -> frozenset[int]:
    return frozenset(query_terms(query))


def _weigh(collection: str, records: list[tuple[bool, float]]) -> Experience:
    successes = sum(success for success, _ in records)
    mean = sum(confidence for _, confidence in records) / len(records)
    smoothed = (successes + 1) / (len(records) + 2)
    return Experience(collection, len(records), round(smoothed * mean, 3))
