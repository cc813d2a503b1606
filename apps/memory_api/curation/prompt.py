"""The curator's prompt: first the prompt file, so providers can cache it, then sections, nearest
bullets, titles of the other bullets, and lessons with their evidence.

Texts are redacted, cut to a budget and fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from memory_api.core.secret_redaction import redact
from memory_api.curation.context import CurationContext, LessonEvidence, NearbyBullet
from memory_api.curation.model_output import ModelCuration
from memory_api.curation.schemas import Lesson
from memory_api.llm.prompts import Prompt, PromptMessages, split_cacheable_prefix
from memory_api.llm.structured_output import schema_text
from memory_api.llm.untrusted_text import distribute_budget, fence_text, fit_text
from memory_api.memories.index.drafts import fingerprint
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.sections import with_fallback
from memory_api.text.excerpts import excerpt
from memory_api.text.terms import estimate_tokens

NAME = "curation/curate"
MAX_SHOWN_BULLETS = 48
MAX_SHOWN_BULLETS_PER_LESSON = 8
MIN_SHOWN_BULLETS_PER_LESSON = 3
"""Bullets with other tools are shown only up to this number per lesson."""
MIN_ENTRY_TOKENS = 64
MAX_TITLE_CHARACTERS = 100
MAX_WAITING_CHARACTERS = 500
MAX_TASK_CHARACTERS = 160
MAX_SHOWN_TOOLS = 8


def group_equal_lessons(open_lessons: Sequence[int], lessons: Sequence[Lesson]) -> list[list[int]]:
    """The indexes of the open lessons; those with the same text are one group."""
    groups: dict[bytes, list[int]] = {}
    for index in open_lessons:
        groups.setdefault(fingerprint(lessons[index].text), []).append(index)
    return list(groups.values())


def build_messages(
    prompt: Prompt,
    lessons: Sequence[Lesson],
    groups: Sequence[Sequence[int]],
    context: CurationContext,
    *,
    budget: int,
) -> PromptMessages:
    """The messages for groups of equal lessons, which are numbered from 1. `budget` is the number
    of estimated tokens for data: at most half of it for lessons and a quarter for titles; bullets
    get the rest. First come the bullets nearest to the lessons; of a small playbook, the others
    follow as far as they fit uncut.
    """
    lesson_entries = [
        _format_lesson(number, [lessons[index] for index in group], _evidence(context, group[0]))
        for number, group in enumerate(groups, start=1)
    ]
    lesson_block = _format_block(lesson_entries, "lessons", budget // 2)
    shown = choose_shown_bullets(groups, context)
    titles = _format_titles(context, {nearby.bullet.id for nearby in shown}, budget // 4)
    room = max(budget // 4, budget - estimate_tokens(lesson_block) - estimate_tokens(titles))
    if context.whole:
        shown = _add_fitting(shown, context, room)
        titles = _format_titles(context, {nearby.bullet.id for nearby in shown}, budget // 4)
    values = {
        "schema": schema_text(ModelCuration),
        "sections": fence_text(
            "\n".join(
                f"{section.name}: {section.description}"
                for section in with_fallback(context.state.sections)
            ),
            label="sections",
        ),
        "bullets": _format_block(
            [_format_bullet(nearby, context) for nearby in shown],
            "bullets",
            room,
        ),
        "titles": titles,
        "focus": redact(context.focus or "").text,
        "lessons": lesson_block,
    }
    return split_cacheable_prefix(prompt.text, values, tuple(nearby.bullet.id for nearby in shown))


def choose_shown_bullets(
    groups: Sequence[Sequence[int]], context: CurationContext
) -> list[NearbyBullet]:
    """The active bullets nearest to the lessons, taken in rounds: first the nearest of each lesson.
    Bullets of the lesson's tools come before the others.
    """
    rounds = zip_longest(*(_rank_bullets(group[0], context) for group in groups))
    shown_by_key = {
        nearby.bullet.id: nearby for round_ in rounds for nearby in round_ if nearby is not None
    }
    return list(shown_by_key.values())[:MAX_SHOWN_BULLETS]


def _add_fitting(
    shown: Sequence[NearbyBullet], context: CurationContext, budget: int
) -> list[NearbyBullet]:
    """The shown bullets, and the others of a small playbook that fit `budget` uncut."""
    keys = {nearby.bullet.id for nearby in shown}
    chosen = list(shown)
    left = budget - sum(estimate_tokens(_format_bullet(nearby, context)) + 1 for nearby in shown)
    for nearby in context.whole:
        if nearby.bullet.id in keys:
            continue
        left -= estimate_tokens(_format_bullet(nearby, context)) + 1
        if left < 0:
            break
        chosen.append(nearby)
    return chosen


def _rank_bullets(lesson: int, context: CurationContext) -> list[NearbyBullet]:
    active = [nearby for nearby in context.near[lesson] if nearby.bullet.status == "active"]
    same_tools = [n for n in active if context.uses_tools_of(lesson, n.bullet.id)]
    others = [n for n in active if not context.uses_tools_of(lesson, n.bullet.id)]
    return [*same_tools, *others[:MIN_SHOWN_BULLETS_PER_LESSON]][:MAX_SHOWN_BULLETS_PER_LESSON]


def _evidence(context: CurationContext, lesson: int) -> LessonEvidence:
    return context.evidence[lesson] if context.evidence else LessonEvidence()


def _format_block(entries: Sequence[str], label: str, budget: int) -> str:
    """The entries, shortened to `budget` estimated tokens. Short ones leave their share to
    others.
    """
    if not entries:
        return "(none)"
    texts = {str(n): redact(entry).text for n, entry in enumerate(entries)}
    sizes = {name: estimate_tokens(text) for name, text in texts.items()}
    granted = distribute_budget(budget, sizes, dict.fromkeys(sizes, 1))
    fitted = [fit_text(text, max(MIN_ENTRY_TOKENS, granted[name])) for name, text in texts.items()]
    return fence_text("\n".join(fitted), label=label)


def _format_titles(context: CurationContext, shown: Collection[str], budget: int) -> str:
    """The texts of the bullets that wait, the shortest first, as many as fit half of the budget,
    then the titles of the bullets that are not shown, as many as fit.
    """
    waiting = {
        key: f"(waits for confirmation) {excerpt(redact(text).text, MAX_WAITING_CHARACTERS)}"
        for key, text in context.unconfirmed.items()
    }
    titles = {
        key: excerpt(redact(title).text, MAX_TITLE_CHARACTERS)
        for key, title in context.titles.items()
        if key not in shown
    }
    waiting = dict(sorted(waiting.items(), key=lambda item: len(item[1])))
    lines, used = _fit_lines(waiting, budget // 2)
    lines += _fit_lines(titles, budget - used)[0]
    return fence_text("\n".join(lines), label="titles") if lines else "(none)"


def _fit_lines(texts: Mapping[str, str], budget: int) -> tuple[list[str], int]:
    """The first lines that fit the budget, and the tokens that they need."""
    lines: list[str] = []
    used = 0
    for key, text in texts.items():
        line = f"[{key}] {text}"
        size = estimate_tokens(line) + 1
        if used + size > budget:
            break
        lines.append(line)
        used += size
    return lines, used


def _format_bullet(nearby: NearbyBullet, context: CurationContext) -> str:
    bullet = nearby.bullet
    facts = [f"helpful {bullet.helpful}", f"harmful {bullet.harmful}"]
    facts.append(f"taught by {nearby.observation_count}")
    facts += ["pinned"] if bullet.pinned else []
    return format_bullet(bullet, facts, context.bullet_tools.get(bullet.id, ()))


def format_bullet(
    bullet: Bullet, facts: Sequence[str], tools: Collection[str], notes: Sequence[str] = ()
) -> str:
    """A bullet with what is known of it: `facts` on its first line, `notes` on lines of their
    own.
    """
    lines = [f"[{bullet.id}] {', '.join([bullet.section, *facts])}", *(f"  {n}" for n in notes)]
    if tools:
        lines.append(f"  tools: {list_tools(sorted(tools))}")
    if bullet.title:
        lines.append(f"  title: {bullet.title}")
    if bullet.when_to_use:
        lines.append(f"  when: {bullet.when_to_use}")
    return "\n".join([*lines, f"  {bullet.content}"])


def list_tools(names: Sequence[str]) -> str:
    """At most `MAX_SHOWN_TOOLS` of the names, and the number of the others."""
    more = len(names) - MAX_SHOWN_TOOLS
    return ", ".join(names[:MAX_SHOWN_TOOLS]) + (f" and {more} more" if more > 0 else "")


def _format_lesson(number: int, equal: Sequence[Lesson], evidence: LessonEvidence) -> str:
    lesson = equal[0]
    lines = [f"{number}. ({lesson.kind}) {lesson.text}"]
    if lesson.when_to_use:
        lines.append(f"  when: {lesson.when_to_use}")
    taught_by = max(lesson.observation_count, len(equal))
    facts = [f"outcome of the run that taught it {lesson.outcome}"] if lesson.outcome else []
    facts += [f"importance {lesson.importance:.2f}", f"confidence {lesson.confidence:.2f}"]
    facts.append(f"taught by {taught_by}")
    if lesson.remedy:
        facts.append(f"remedy {lesson.remedy}")
    if evidence.attempt_count > 1:
        facts.append(f"attempts at the task {evidence.attempt_count}")
        facts.append(f"successful {evidence.success_count}")
    lines.append(f"  evidence: {', '.join(facts)}")
    if evidence.tools:
        lines.append(f"  tools: {list_tools(evidence.tools)}")
    if evidence.task:
        lines.append(f"  task: {excerpt(evidence.task, MAX_TASK_CHARACTERS)}")
    return "\n".join(lines)
