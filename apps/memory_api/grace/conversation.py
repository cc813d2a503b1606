"""A conversation: a follow-up question refers to the questions and answers before it (S3.61).

They are stored with the run, so that it reads no other run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import Conflict, InvalidRequest
from memory_api.grace import queries
from memory_api.llm.untrusted_text import fence_text

CONVERSATION, PREVIOUS_RUN = "conversation", "previous_run_id"
"""Keys of `options`: the earlier questions and answers, oldest first; the run before this one."""
MAX_EARLIER_ANSWERS = 6
MAX_TEXT_LENGTH = 2_000
"""Characters of a question, and of an answer."""
EarlierAnswer = Mapping[str, str]
"""A `question` and its `answer`."""


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
