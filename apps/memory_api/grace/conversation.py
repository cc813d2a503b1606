"""A conversation: a follow-up question refers to the questions and answers before it (S3.61).

They are stored with the run, so that it reads no other run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import Conflict, InvalidRequest
from memory_api.grace import queries
from memory_api.llm.untrusted_text import fence_text

CONVERSATION, PREVIOUS_RUN = "conversation", "previous_run_id"
"""Keys of `options`: the earlier questions and answers, oldest first; the run before this one."""
MAX_TURNS = 6
MAX_TURN_LENGTH = 2_000
"""Of a question, and of an answer."""
Turn = Mapping[str, str]
_REFERS_BACK = re.compile(
    r"^(?:and|but|so|then|what about|how about)\b"
    r"|\b(?:it|its|they|them|their|that|this|those|these|he|him|his|she|her|there|one|ones)\b"
    r"|^(?:では|じゃあ|それでは|あと)|それ|その|そこ|そちら|彼|彼女",
    re.IGNORECASE,
)


async def load_conversation(
    session: AsyncSession, project_id: str, previous_run_id: UUID
) -> Sequence[Turn]:
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
    turn = {"question": previous.query[:MAX_TURN_LENGTH], "answer": answer[:MAX_TURN_LENGTH]}
    return [*previous.options.get(CONVERSATION, ()), turn][-MAX_TURNS:]


def format_conversation(turns: Sequence[Turn]) -> str:
    """The turns for a prompt, fenced; empty if there are none."""
    if not turns:
        return ""
    texts = [f"Question: {each['question']}\nAnswer: {each['answer']}" for each in turns]
    return fence_text("\n\n".join(texts), label="conversation")


def with_earlier_question(query: str, turns: Sequence[Turn]) -> str:
    """What the rules search for: a question that refers back has the words of the one before it."""
    if not turns or not _REFERS_BACK.search(query):
        return query
    return f"{turns[-1]['question']} {query}"
