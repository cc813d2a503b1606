"""The curator without a model. Also chooses sections and extracts conditions, in English and
Japanese.

A lesson that matches a bullet counts as another observation of it. The same advice for another tool
extends the tool list of the bullet (`text/advice.py`). A lesson that contains the words of a bullet
and adds names or numbers replaces its content. Any other lesson becomes a new bullet, marked if it
contradicts existing ones. Rules give no title, because it would only repeat the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from memory_api.curation.context import CurationContext
from memory_api.curation.lesson_duplicates import (
    NearbyBullet,
    find_contradictions,
    find_duplicates,
    find_first_duplicate,
    find_same_advice,
    is_duplicate,
)
from memory_api.curation.schemas import (
    KnownLesson,
    Lesson,
    ProposedChange,
    RejectedLesson,
    new_delta,
)
from memory_api.playbooks.models import Bullet, DeltaContextItem, RevisionHint
from memory_api.playbooks.sections import SectionDefinition, find_section, with_fallback
from memory_api.text.advice import merge_tool_lists, strip_tool_lists
from memory_api.text.differences import names_and_numbers
from memory_api.text.similarity import containment

_PREFERENCE = re.compile(
    r"\b(?:user|customer|client|team|reader)s? (?:always |usually )?"
    r"(?:prefers?|likes?|dislikes?|wants? (?:answers|replies|it|them|the))\b"
    r"|\bpreferences?\b"
    r"|(?:利用者|ユーザー|お客様|顧客)[はが].{0,30}(?:好[むみま]|望[むみま]|してほしい|嫌[いう])",
    re.IGNORECASE,
)
_WARNING = re.compile(
    r"(?:^|[.:;,] ?|\bthen )(?:please )?(?:never|avoid|do not|don['’]t)\b"
    r"|\b(?:must|should|may) not\b|\bmistake\b"
    r"|^[^、]*(?:(?<!ければなら)(?<!ければいけ)ない|避ける|禁止|やめる)(?:こと|ようにする)?[。．]?$"
    r"|決して",
    re.IGNORECASE | re.MULTILINE,
)
_FACT = re.compile(
    r"^[`'\"]?[\w.()/-]+[`'\"]? (?:returns?|requires?|expects?|accepts?|takes|gives|rejects?"
    r"|does not|doesn['’]t|is|are|has|have|needs?|uses?|lives?|stands?|runs?)\b"
    r"|^the (?:\w+ ){1,4}(?:returns?|requires?|expects?|accepts?|is|are|has|uses?)\b"
    r"|^.{1,40}[はが].{0,60}(?:を返す|必要とする|である|です|にある|受け付ける)[。．]?$",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"^((?:When|Whenever|If|Before|After|While|Once)\b[^.;:]{3,160}?)[,:] +(.+)", re.S
)
_CONDITION_JA = re.compile(
    r"^(.{2,60}?(?:ときは|時は|とき|場合は|場合|前に|際は|際に|たら|れば|後は|後に))[、,](.+)", re.S
)
_NON_VERB_START = re.compile(
    r"(?:the|an?|this|that|these|those|there|its?|he|she|they|we|i|in|on|at|some|most|no|many|one"
    r"|our|my|your)\b",
    re.IGNORECASE,
)
_SECTION_NAMES = {
    "pref": re.compile(r"prefer|好み"),
    "mis": re.compile(r"mistake|pitfall|error|avoid|失敗|注意"),
    "ctx": re.compile(r"context|\bapis?\b|fact|schema|environment|前提|環境"),
    "pat": re.compile(r"pattern|approach|strateg|rule|workflow|heuristic|方針|手順"),
}


def add_delta(
    lesson: Lesson, sections: Sequence[SectionDefinition], reasoning: str
) -> DeltaContextItem:
    """The lesson as a new bullet."""
    condition, _ = split_condition(lesson.text)
    return new_delta(
        "ADD",
        section=choose_section(lesson, sections),
        content=lesson.text.strip(),
        title=lesson.title or None,
        when_to_use=lesson.when_to_use or condition,
        tags=lesson.tags or None,
        reasoning=reasoning,
    )


def choose_section(lesson: Lesson, sections: Sequence[SectionDefinition]) -> str:
    """The requested section if it exists, else the one for the kind of the lesson: a preference, a
    warning, a fact, or a procedure.
    """
    known = with_fallback(sections)
    if lesson.section and (requested := find_section(known, lesson.section)):
        return requested.name
    slug = classify_advice(lesson.text)
    by_slug = next((s for s in known if s.slug == slug), None)
    if by_slug is None and slug in _SECTION_NAMES:
        by_slug = next((s for s in known if _SECTION_NAMES[slug].search(_section_text(s))), None)
    fallback = find_section(known, "OTHERS")
    return (by_slug or fallback or known[-1]).name


def classify_advice(text: str) -> str:
    """`pref`, `mis`, `ctx`, `pat` or `oth`, after spec 4's five sections."""
    text = strip_tool_lists(text).strip()
    condition, advice = split_condition(text)
    if _PREFERENCE.search(text):
        return "pref"
    if _WARNING.search(advice):
        return "mis"
    if not condition and _FACT.search(text):
        return "ctx"
    return "pat" if condition or _is_imperative(advice) else "oth"


def split_condition(text: str) -> tuple[str, str]:
    """("When the upload times out", "split the file …"); ("", the text) when it has none."""
    for pattern in (_CONDITION, _CONDITION_JA):
        if match := pattern.match(text.strip()):
            return match[1].strip(), match[2].strip()
    return "", text.strip()


def _section_text(section: SectionDefinition) -> str:
    return f"{section.name} {section.description}".replace("_", " ").casefold()


def _is_imperative(text: str) -> bool:
    """Whether a sentence is an imperative: in English by a first word that is no article or
    pronoun, in Japanese by a verb in plain form at the end.
    """
    if not text.isascii() and re.search(r"[ぁ-ん]", text):
        return bool(re.search(r"(?:[うくすつぬむるぐぶ]|こと|ください)[。．]?$", text))
    return text[:1].isalpha() and not _NON_VERB_START.match(text)


MIN_CONTAINMENT = 0.98
"""The share of a bullet's words that a lesson needs to replace its content, 0 to 1."""
OPEN_PROPOSAL_REASON = "A proposal with this lesson is waiting for review."
MAX_CONTENT_CHARACTERS = 4_000
"""Maximum number of characters of a bullet."""


@dataclass
class RuleDecisions:
    """The decisions of the rules on lessons."""

    changes: list[ProposedChange] = field(default_factory=list[ProposedChange])
    known_lessons: list[KnownLesson] = field(default_factory=list[KnownLesson])
    rejected_lessons: list[RejectedLesson] = field(default_factory=list[RejectedLesson])

    @property
    def open(self) -> list[int]:
        """The lessons that would change the playbook, without hints."""
        return sorted({index for c in self.changes if not _is_hint(c) for index in c.lessons})

    @property
    def about_hints(self) -> list[ProposedChange]:
        return [c for c in self.changes if _is_hint(c)]


def decide_by_rules(lessons: Sequence[Lesson], context: CurationContext) -> RuleDecisions:
    """Decides on every lesson: known, rejected, or part of a candidate; by descending weight."""
    decisions = RuleDecisions()
    order = sorted(range(len(lessons)), key=lambda index: (-weigh_lesson(lessons[index]), index))
    for index in order:
        _decide_lesson(decisions, index, lessons[index], context)
    hinted_keys: set[str] = set()
    for index in order:
        for hint in lessons[index].hints:
            if hint.key not in hinted_keys and (change := _narrow_by_hint(index, hint, context)):
                hinted_keys.add(hint.key)
                decisions.changes.append(change)
    return decisions


def weigh_lesson(lesson: Lesson) -> float:
    return lesson.importance * lesson.confidence


def _decide_lesson(
    decisions: RuleDecisions, index: int, lesson: Lesson, context: CurationContext
) -> None:
    text = lesson.text.strip()
    if not text or len(text) > MAX_CONTENT_CHARACTERS:
        reason = (
            f"The lesson is longer than {MAX_CONTENT_CHARACTERS:,} characters."
            if text
            else "The lesson is empty."
        )
        decisions.rejected_lessons.append(RejectedLesson(reason=reason, lessons=[index]))
        return
    known = context.known.get(index)
    if known is not None and known.key is not None:
        decisions.known_lessons.append(
            KnownLesson(lesson=index, key=known.key, reason=known.reason)
        )
        return
    if same_advice := find_same_advice(text, context.near[index]):
        _extend_tool_list(decisions, index, text, same_advice.bullet)
        return
    duplicates = find_duplicates(text, context.near[index])
    if duplicates:
        _handle_duplicates(decisions, index, lesson, duplicates)
    elif known is not None:
        decisions.rejected_lessons.append(RejectedLesson(reason=known.reason, lessons=[index]))
    elif any(is_duplicate(text, other) for other in context.waiting):
        decisions.rejected_lessons.append(
            RejectedLesson(reason=OPEN_PROPOSAL_REASON, lessons=[index])
        )
    elif not _join_matching_change(decisions, index, text):
        _add_bullet(decisions, index, lesson, context)


def _extend_tool_list(decisions: RuleDecisions, index: int, text: str, bullet: Bullet) -> None:
    """Adds the tools of the lesson to the tool list of a bullet with the same advice."""
    change = next((c for c in decisions.changes if c.delta.bullet_id == bullet.id), None)
    if change is not None and change.delta.content:
        _join_change(change, index, text)
        return
    merged_content = merge_tool_lists(bullet.content, text)
    if (
        merged_content == bullet.content
        or merged_content is None
        or not _is_free(bullet)
        or change is not None
    ):
        decisions.known_lessons.append(
            KnownLesson(lesson=index, key=bullet.id, reason=f"Matches bullet {bullet.id}.")
        )
        return
    decisions.changes.append(
        ProposedChange(delta=extended_list_delta(bullet.id, merged_content), lessons=[index])
    )


def extended_list_delta(key: str, content: str) -> DeltaContextItem:
    """The UPDATE of a bullet with a longer tool list."""
    reason = "The same advice was found for other tools."
    return new_delta("UPDATE", bullet_id=key, content=content, reasoning=reason)


def _join_change(change: ProposedChange, index: int, text: str) -> bool:
    """Adds the lesson to a candidate with the same advice; False if the advice differs."""
    merged_content = merge_tool_lists(change.delta.content or "", text)
    if merged_content is None:
        return False
    change.delta.content = merged_content
    change.lessons.append(index)
    return True


def _handle_duplicates(
    decisions: RuleDecisions, index: int, lesson: Lesson, duplicates: Sequence[NearbyBullet]
) -> None:
    nearest = duplicates[0].bullet
    if adds_details(lesson.text, nearest) and not _is_targeted(decisions, nearest.id):
        change = new_delta(
            "UPDATE",
            bullet_id=nearest.id,
            content=lesson.text.strip(),
            reasoning="The same lesson with additional names or numbers.",
        )
        decisions.changes.append(ProposedChange(delta=change, lessons=[index]))
        return
    pair = _mergeable(duplicates)
    if pair is not None and not any(_is_targeted(decisions, nearby.bullet.id) for nearby in pair):
        decisions.changes.append(ProposedChange(delta=merge_delta(pair), lessons=[index]))
        return
    decisions.known_lessons.append(
        KnownLesson(lesson=index, key=nearest.id, reason=f"Matches bullet {nearest.id}.")
    )


def adds_details(text: str, bullet: Bullet) -> bool:
    """Whether a text contains the words of a bullet and additional names or numbers."""
    if not _is_free(bullet):
        return False
    return containment(bullet.content, text) >= MIN_CONTAINMENT and bool(
        names_and_numbers(text) - names_and_numbers(bullet.content)
    )


def _is_free(bullet: Bullet) -> bool:
    return bullet.status == "active" and not bullet.pinned


def merge_delta(duplicates: Sequence[NearbyBullet]) -> DeltaContextItem:
    """Merges duplicates: the bullet with more evidence keeps its content."""
    survivor, *others = sorted(
        duplicates, key=lambda nearby: (-count_support(nearby), nearby.bullet.id)
    )
    keys = [other.bullet.id for other in others]
    reason = f"Bullet {keys[0]} is a duplicate."
    if len(keys) > 1:
        reason = f"Bullets {', '.join(keys)} are duplicates."
    return new_delta("MERGE", bullet_id=survivor.bullet.id, source_ids=keys, reasoning=reason)


def count_support(near: NearbyBullet) -> int:
    """The number of verdicts and observations of a bullet."""
    return near.bullet.helpful + near.bullet.harmful + near.observation_count


def _mergeable(duplicates: Sequence[NearbyBullet]) -> tuple[NearbyBullet, NearbyBullet] | None:
    mergeable = [nearby for nearby in duplicates if _is_free(nearby.bullet)]
    if len(mergeable) < 2 or not is_duplicate(
        mergeable[0].bullet.content, mergeable[1].bullet.content
    ):
        return None
    return mergeable[0], mergeable[1]


def _join_matching_change(decisions: RuleDecisions, index: int, text: str) -> bool:
    """Adds the lesson to a candidate of this run that matches; False if there is none."""
    if any(_join_change(change, index, text) for change in decisions.changes):
        return True
    contents = {
        str(position): c.delta.content
        for position, c in enumerate(decisions.changes)
        if c.delta.content
    }
    change_index = find_first_duplicate(text, contents)
    if change_index is None:
        return False
    decisions.changes[int(change_index)].lessons.append(index)
    return True


def _add_bullet(
    decisions: RuleDecisions, index: int, lesson: Lesson, context: CurationContext
) -> None:
    contradicted = [
        nearby.bullet.id for nearby in find_contradictions(lesson.text, context.near[index])
    ]
    reason = (
        f"Contradicts {', '.join(contradicted)}."
        if contradicted
        else "No bullet matches this lesson."
    )
    change = add_delta(lesson, context.state.sections, reason)
    decisions.changes.append(
        ProposedChange(delta=change, lessons=[index], contradicts=contradicted)
    )


def _narrow_by_hint(
    index: int, hint: RevisionHint, context: CurationContext
) -> ProposedChange | None:
    """Narrows when a bullet applies, after a failed run that used it."""
    key = context.state.resolve(hint.key)
    if hint.action != "revise" or not hint.when_to_use or key is None:
        return None
    change = new_delta(
        "UPDATE",
        bullet_id=key,
        when_to_use=hint.when_to_use,
        reasoning=hint.reason or "A failed run used this bullet.",
    )
    return ProposedChange(delta=change, lessons=[index])


def _is_hint(candidate: ProposedChange) -> bool:
    """Whether the candidate changes only `when_to_use`."""
    return candidate.delta.type == "UPDATE" and not candidate.delta.content


def _is_targeted(decisions: RuleDecisions, key: str) -> bool:
    return any(key in (c.delta.bullet_id, *c.delta.source_ids) for c in decisions.changes)
