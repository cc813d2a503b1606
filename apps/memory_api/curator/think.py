"""The thinking step: lessons and what concerns them, in; what is to change, out. No database, no
HTTP but the model's, which is asked once, and not at all when rules can settle every lesson.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from apps.memory_api.curator.answer import CuratorAnswer, believe
from apps.memory_api.curator.clean import clean
from apps.memory_api.curator.prompt import NAME, compose
from apps.memory_api.curator.rules import Settled, settle
from apps.memory_api.curator.schemas import Candidate, Curation, KeptLesson, Lesson
from apps.memory_api.curator.view import View
from apps.memory_api.llm.counted import Counted
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.llm.structured import ask
from apps.memory_api.reflection.mind import Mind

log = structlog.get_logger()


async def think(lessons: Sequence[Lesson], view: View, mind: Mind | None = None) -> Curation:
    """Decide on lessons by the rules, or by a model for those that rules cannot settle. Raises the
    model's `LLMError`.
    """
    by_rules = settle(lessons, view)
    asked = by_rules.open
    if mind is None or not asked:
        return _curation(lessons, view, by_rules)
    prompt = mind.prompt(NAME)
    question = compose(prompt, lessons, asked, view, budget=mind.prompt_tokens)
    counted = Counted(mind.llm)
    request = mind.request(
        question.messages, fixed=question.fixed, purpose="curate", prompt_hash=prompt.hash
    )
    try:
        answer, _ = await ask(counted, CuratorAnswer, request)
    except LLMError as error:
        if not mind.or_rules:
            raise
        log.warning("curation_by_rules", code=error.code, error=str(error))
        degraded = _curation(lessons, view, by_rules)
        told = {"failure": error, "prompt_hash": prompt.hash, "usage": counted.usage()}
        return degraded.model_copy(update=told)
    said = believe(answer, question.shown, asked, lessons, view)
    both = Settled(
        [*said.candidates, *by_rules.about_hints],
        [*by_rules.kept, *said.kept],
        [*by_rules.dropped, *said.dropped],
    )
    told = {"engine": "llm", "prompt_hash": prompt.hash, "usage": counted.usage()}
    return _curation(lessons, view, both).model_copy(update=told)


def _curation(lessons: Sequence[Lesson], view: View, settled: Settled) -> Curation:
    good, left = clean(view.state, settled.candidates)
    return Curation(
        version=view.version,
        lessons=list(lessons),
        candidates=good,
        kept=_once(settled.kept, good),
        dropped=[*settled.dropped, *left],
    )


def _once(kept: Sequence[KeptLesson], candidates: Sequence[Candidate]) -> list[KeptLesson]:
    """One decision a lesson: what changes the playbook goes before what keeps it."""
    changed = {n for c in candidates if c.delta.content for n in c.lessons}
    seen: set[int] = set()
    once: list[KeptLesson] = []
    for keep in kept:
        if keep.lesson not in seen and keep.lesson not in changed:
            seen.add(keep.lesson)
            once.append(keep)
    return once
