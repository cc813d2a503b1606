"""What a person's correction teaches: a bullet with the right answer to a question, or with the
words that found it. The next run with a similar question uses it (docs/grace.md).

The transaction that stores the feedback queues a run of the kind `agent_correction`, which writes
the bullet, or proposes it if the playbook requires review.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.grace import queries
from memory_api.grace.context import CONVERSATION
from memory_api.grace.execution_plan import SEARCH_ACTIONS
from memory_api.grace.tables import AgentRunRow
from memory_api.playbooks.bullet_rows import FoundBullet
from memory_api.playbooks.errors import PlaybookNotFound
from memory_api.playbooks.models import DeltaContextItem
from memory_api.playbooks.proposals.review import apply_or_propose
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.retrieval.retrieve import preview_search
from memory_api.run_queue.port import Ticket
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult, new_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.text.excerpts import detect_language
from memory_api.text.terms import STOP_WORDS, content_terms, stem

CORRECTION = "agent_correction"
"""The kind of run. Its input has the `agent_run_id`."""
Taught = Literal["corrected-answer", "search-words"]
TAGS: tuple[Taught, ...] = ("corrected-answer", "search-words")
SECTION = "OTHERS"
MAX_QUESTION_LENGTH, MAX_ANSWER_LENGTH = 500, 1_000
"""A longer question or answer becomes no bullet: it would fill the prompts of other questions."""
SEARCHED_BULLETS = 10
MIN_SIMILARITY = 0.6
"""From this similarity of two questions on, the correction of one is used for the other."""
TEXTS: dict[tuple[str, Taught], str] = {
    ("en", "corrected-answer"): 'When asked "{question}", answer: {text}',
    ("en", "search-words"): 'When asked "{question}", search for: {text}',
    ("ja", "corrected-answer"): "「{question}」と質問されたら、次のように答える。{text}",
    ("ja", "search-words"): "「{question}」と質問されたら、次の語で検索する。{text}",
}
_NUMBER_OR_NAME = re.compile(r"\d+|(?<=[^.!?] )[A-Z]\w+")
"""Digits, and words in capitals that do not start a sentence."""
_KINDS = {
    "when": re.compile(
        r"\b(?:when|how (?:recently|long ago)|(?:what|which) (?:\w+ ){0,2}?"
        r"(?:year|date|day|month|decade|century|time))\b",
        re.IGNORECASE,
    ),
    "where": re.compile(r"\bwhere\b", re.IGNORECASE),
    "who": re.compile(r"\b(?:who|whom|whose)\b", re.IGNORECASE),
    "why": re.compile(r"\bwhy\b", re.IGNORECASE),
    "number": re.compile(
        r"\bhow (?:many|much|old|long|far|high|tall|big|large|often|fast|deep|heavy)\b",
        re.IGNORECASE,
    ),
    "how": re.compile(r"\bhow\b", re.IGNORECASE),
}
_WORD = re.compile(r"[一-龥々〆]+|[ァ-ヴー]+|[^\W_ぁ-ん一-龥々〆ァ-ヴー]+")
_FILLERS = frozenset(
    ("please", "exactly", "now", "currently", "today", "one", "also", "called", "name")
)
_MAX_REPLACED_WORDS = 2


@dataclass(frozen=True)
class Correction:
    """What a bullet teaches about one question: an answer, or words to search for."""

    key: str
    tag: Taught
    question: str
    text: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def find_corrections(bullets: Iterable[FoundBullet]) -> list[Correction]:
    """The corrections among these bullets. A person may have edited them: the condition of the
    bullet is the question, its title the text.
    """
    return [
        Correction(bullet.key, tag, bullet.when_to_use, bullet.title)
        for bullet in bullets
        for tag in TAGS
        if tag in (bullet.tags or ()) and bullet.when_to_use and bullet.title
    ]


def question_similarity(left: str, right: str) -> float:
    """Share of the words of two questions that both have, 0 to 1. 0 if they ask for different
    things: if one has a number or a name that the other does not have, if one asks when and the
    other asks where, or if they differ in one place only ("invoices of customers", "of suppliers").
    """
    if _is_about_others(left, right) or _is_about_others(right, left):
        return 0.0
    if _kinds_differ(left, right) or _differ_in_one_place(left, right):
        return 0.0
    mine, theirs = content_terms(left), content_terms(right)
    either = mine | theirs
    return len(mine & theirs) / len(either) if either else 0.0


def _kinds_differ(left: str, right: str) -> bool:
    kinds = {_kind_of(left), _kind_of(right)}
    return len(kinds) > 1 and (None not in kinds or "when" in kinds)


def _kind_of(question: str) -> str | None:
    """What an English question asks for; None if a question word such as `what` does not say."""
    return next((kind for kind, words in _KINDS.items() if words.search(question)), None)


def _differ_in_one_place(left: str, right: str) -> bool:
    """Whether the content words are the same in the same order, except in one place."""
    mine, theirs = _content_words(left), _content_words(right)
    start = 0
    while start < min(len(mine), len(theirs)) and mine[start] == theirs[start]:
        start += 1
    end = 0
    while end < min(len(mine), len(theirs)) - start and mine[-1 - end] == theirs[-1 - end]:
        end += 1
    own, other = mine[start : len(mine) - end], theirs[start : len(theirs) - end]
    is_short = 0 < max(len(own), len(other)) <= _MAX_REPLACED_WORDS
    return is_short and not set(own) & set(other)


def _content_words(question: str) -> list[str]:
    """The stems of the words without function words; of Japanese, without hiragana."""
    words = _WORD.findall(question.casefold())
    return [stem(word) for word in words if word not in STOP_WORDS and word not in _FILLERS]


def _is_about_others(left: str, right: str) -> bool:
    folded = right.casefold()
    return any(each.casefold() not in folded for each in _NUMBER_OR_NAME.findall(left))


def choose_correction(
    query: str, corrections: Sequence[Correction], tags: Sequence[Taught] = TAGS
) -> tuple[Correction, float] | None:
    """The correction of the most similar question, and the similarity. None if none is similar."""
    weighed = [(each, question_similarity(query, each.question)) for each in corrections]
    similar = [each for each in weighed if each[1] >= MIN_SIMILARITY and each[0].tag in tags]
    return max(similar, key=lambda each: each[1], default=None)


async def enqueue_correction(
    runtime: Runtime, session: AsyncSession, agent_run: AgentRunRow
) -> None:
    """Queue the run that learns from the feedback of an agent run, if it can teach a bullet."""
    if agent_run.playbook is None or not runtime.settings.reflective_memory_enabled:
        return
    if CONVERSATION in agent_run.options:
        return  # the words of a follow-up question do not say what was asked
    if await _read_lesson(session, agent_run) is None:
        return
    run = new_run(
        session,
        CORRECTION,
        project_id=agent_run.project_id,
        input={"agent_run_id": str(agent_run.id)},
        max_attempts=runtime.settings.max_attempts,
    )
    await session.flush()
    await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id)])


async def _read_lesson(session: AsyncSession, agent_run: AgentRunRow) -> tuple[Taught, str] | None:
    """The right answer to a wrong one, or the words that a person gave to a search that led to a
    right one. A text of question words, such as "Why?", is neither.
    """
    if len(agent_run.query) > MAX_QUESTION_LENGTH:
        return None
    text, tag = agent_run.feedback_answer or "", TAGS[0]
    if agent_run.feedback == "right":
        steps = await queries.load_steps(session, agent_run)
        searches = {row.step_id for row in steps if row.spec["action"] in SEARCH_ACTIONS}
        given = [
            row.input
            for row in await queries.list_interventions(session, agent_run.id)
            if row.action == "input" and row.step_id in searches
        ]
        text, tag = (given[-1] if given else None) or "", TAGS[1]
    text = text.strip()
    is_lesson = 0 < len(text) <= MAX_ANSWER_LENGTH and not is_mere_question(text)
    return (tag, text) if is_lesson else None


def is_mere_question(text: str) -> bool:
    """Whether a text asks back without naming anything: "Why?", "What is that?"."""
    return text.endswith(("?", "？")) and not content_terms(text)


@dataclass(frozen=True)
class PersonLesson:
    """What a person taught about a question."""

    place: PlaybookRef
    question: str
    taught: Taught
    text: str


class CorrectionStep(Step[PersonLesson | None, Sequence[str] | None, StepResult]):
    """How a run of the kind `agent_correction` is executed. A repetition changes nothing."""

    kind = CORRECTION

    async def load(self, session: AsyncSession, run: RunRow) -> PersonLesson | None:
        agent_run = await queries.get_agent_run(session, UUID(run.input["agent_run_id"]))
        if agent_run is None or agent_run.playbook is None:
            return None
        lesson = await _read_lesson(session, agent_run)
        place = PlaybookRef(agent_run.project_id, agent_run.playbook)
        return None if lesson is None else PersonLesson(place, agent_run.query, *lesson)

    async def compute(
        self, runtime: Runtime, run: RunRow, input: PersonLesson | None
    ) -> Sequence[str] | None:
        if input is None:
            return None
        delta = await _to_delta(runtime, run.tenant_id, input)
        author = ChangeAuthor("grace", "A person corrected an answer.", run.id)
        done = await apply_or_propose(runtime, run.tenant_id, input.place, [delta], author)
        return [each.key for each in done.results if each.key]

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: Sequence[str] | None
    ) -> StepResult:
        data: dict[str, Any] = {"agent_run_id": run.input["agent_run_id"]}
        if output is not None:
            data["bullet_keys"] = output
        return StepResult(data=data)


async def _to_delta(runtime: Runtime, tenant_id: UUID, lesson: PersonLesson) -> DeltaContextItem:
    """A new bullet, or an update of the one that teaches about the same question."""
    question, tag, text = lesson.question, lesson.taught, lesson.text
    language = "ja" if detect_language([question]) == "ja" else "en"
    content = TEXTS[language, tag].format(question=question, text=text)
    fields = {"content": content, "title": text, "when_to_use": question, "tags": [tag]}
    try:
        hits = await preview_search(
            runtime, tenant_id, lesson.place, question, top_k=SEARCHED_BULLETS
        )
    except PlaybookNotFound:
        hits = ()
    for known in find_corrections(hit.memory for hit in hits):
        if known.question == question:
            return DeltaContextItem.model_validate(
                {"type": "UPDATE", "bullet_id": known.key, **fields}
            )
    return DeltaContextItem.model_validate({"type": "ADD", "section": SECTION, **fields})
