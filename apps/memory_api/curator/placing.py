"""Where a lesson belongs in a playbook, and when to use it. Said by rules, in English and Japanese.

Rules give no title: a piece of the text would say nothing that the text does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from apps.memory_api.curator.schemas import Lesson, delta
from apps.memory_api.playbook.rolls import head_of
from apps.memory_api.playbook.schemas import DeltaContextItem
from apps.memory_api.playbook.sections import SectionDefinition, find_section, with_fallback

_PREFERS = re.compile(
    r"\b(?:user|customer|client|team|reader)s? (?:always |usually )?"
    r"(?:prefers?|likes?|dislikes?|wants? (?:answers|replies|it|them|the))\b"
    r"|\bpreferences?\b"
    r"|(?:利用者|ユーザー|お客様|顧客)[はが].{0,30}(?:好[むみま]|望[むみま]|してほしい|嫌[いう])",
    re.IGNORECASE,
)
_FORBIDS = re.compile(
    r"(?:^|[.:;,] ?|\bthen )(?:please )?(?:never|avoid|do not|don['’]t)\b"
    r"|\b(?:must|should|may) not\b|\bmistake\b"
    r"|^[^、]*(?:(?<!ければなら)(?<!ければいけ)ない|避ける|禁止|やめる)(?:こと|ようにする)?[。．]?$"
    r"|決して",
    re.IGNORECASE | re.MULTILINE,
)
_STATES = re.compile(
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
_NO_VERBS = re.compile(
    r"(?:the|an?|this|that|these|those|there|its?|he|she|they|we|i|in|on|at|some|most|no|many|one"
    r"|our|my|your)\b",
    re.IGNORECASE,
)
_KINDS = {
    "pref": re.compile(r"prefer|好み"),
    "mis": re.compile(r"mistake|pitfall|error|avoid|失敗|注意"),
    "ctx": re.compile(r"context|\bapis?\b|fact|schema|environment|前提|環境"),
    "pat": re.compile(r"pattern|approach|strateg|rule|workflow|heuristic|方針|手順"),
}


def as_add(
    lesson: Lesson, sections: Sequence[SectionDefinition], reasoning: str
) -> DeltaContextItem:
    """The lesson as a new bullet."""
    condition, _ = condition_of(lesson.text)
    return delta(
        "ADD",
        section=section_of(lesson, sections),
        content=lesson.text.strip(),
        title=lesson.title or None,
        when_to_use=lesson.when_to_use or condition,
        tags=lesson.tags or None,
        reasoning=reasoning,
    )


def section_of(lesson: Lesson, sections: Sequence[SectionDefinition]) -> str:
    """The section that was wished for, if there is one; else the one that fits what the lesson is:
    a preference, a warning, a fact, or a way of working.
    """
    known = with_fallback(sections)
    if lesson.section and (wished := find_section(known, lesson.section)):
        return wished.name
    slug = kind_of(lesson.text)
    by_slug = next((s for s in known if s.slug == slug), None)
    if by_slug is None and slug in _KINDS:
        by_slug = next((s for s in known if _KINDS[slug].search(_about(s))), None)
    fallback = find_section(known, "OTHERS")
    return (by_slug or fallback or known[-1]).name


def kind_of(text: str) -> str:
    """`pref`, `mis`, `ctx`, `pat` or `oth`, after spec 4's five sections."""
    text = head_of(text).strip()
    condition, rest = condition_of(text)
    if _PREFERS.search(text):
        return "pref"
    if _FORBIDS.search(rest):
        return "mis"
    if not condition and _STATES.search(text):
        return "ctx"
    return "pat" if condition or _tells_what_to_do(rest) else "oth"


def condition_of(text: str) -> tuple[str, str]:
    """("When the upload times out", "split the file …"); ("", the text) when it has none."""
    for pattern in (_CONDITION, _CONDITION_JA):
        if found := pattern.match(text.strip()):
            return found[1].strip(), found[2].strip()
    return "", text.strip()


def _about(section: SectionDefinition) -> str:
    return f"{section.name} {section.description}".replace("_", " ").casefold()


def _tells_what_to_do(text: str) -> bool:
    """An English sentence that begins with a verb in its plain form, or a Japanese one that ends in
    one: guessed by what it does not begin with.
    """
    if not text.isascii() and re.search(r"[ぁ-ん]", text):
        return bool(re.search(r"(?:[うくすつぬむるぐぶ]|こと|ください)[。．]?$", text))
    return text[:1].isalpha() and not _NO_VERBS.match(text)
