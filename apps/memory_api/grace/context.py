"""What an agent run knows before it plans: its conversation, and which collections worked.

A follow-up question refers to the questions and answers before it (S3.61). They are stored with the
run, so that it reads no other run. The experience is a query over finished runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import Conflict, InvalidRequest
from memory_api.grace import queries
from memory_api.grace.queries import FinishedAgentRun
from memory_api.llm.untrusted_text import fence_text
from memory_api.text.terms import query_terms

CONVERSATION, PREVIOUS_RUN = "conversation", "previous_run_id"
"""Keys of `options`: the earlier questions and answers, oldest first; the run before this one."""
MAX_EARLIER_ANSWERS = 6
MAX_TEXT_LENGTH = 2_000
"""Characters of a question, and of an answer."""
EarlierAnswer = Mapping[str, str]
"""A `question` and its `answer`."""
MAX_RUNS = 200
"""Finished runs that are looked at, newest first."""
MIN_SIMILARITY = 0.2
"""Share of the words that two questions must have in common."""
MIN_RECORDS = 3
MIN_PRIOR = 0.6


async def load_conversation(
    session: AsyncSession, project_id: str, previous_run_id: UUID
) -> Sequence[EarlierAnswer]:
    """The questions and answers up to and with this run, oldest first. Raises `InvalidRequest` if
    the project has no such run, and `Conflict` if it has no answer.
    """
    previous = await queries.get_agent_run(session, previous_run_id)
    if previous is None or previous.project_id != project_id:
        raise InvalidRequest("This project has no such run.", field=PREVIOUS_RUN)
    result: dict[str, Any] = previous.result or {}
    answer: str | None = result.get("final_answer")
    if answer is None:
        raise Conflict(
            f"The previous run is {previous.state} and has no answer. Ask after a run that is done."
        )
    newest = {"question": previous.query[:MAX_TEXT_LENGTH], "answer": answer[:MAX_TEXT_LENGTH]}
    return [*previous.options.get(CONVERSATION, ()), newest][-MAX_EARLIER_ANSWERS:]


def format_conversation(conversation: Sequence[EarlierAnswer]) -> str:
    """The questions and answers for a prompt, fenced; empty if there are none."""
    if not conversation:
        return ""
    texts = [f"Question: {each['question']}\nAnswer: {each['answer']}" for each in conversation]
    return fence_text("\n\n".join(texts), label="conversation")


def with_earlier_question(query: str, conversation: Sequence[EarlierAnswer]) -> str:
    """What the rules search for: a follow-up question has the words of the one before it, too."""
    return f"{conversation[-1]['question']} {query}" if conversation else query


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
