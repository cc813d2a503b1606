"""Which tools a bullet recommends and which it advises against.

A tool counts only if its name is unambiguous and its clause has an imperative such as "call" or "do
not". A condition ("When Search fails, …") is neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_CLAUSE = re.compile(r"(?<=[;；。!！?？,，、\n])|(?<=\.)(?=\s)|(?<=:)(?=\s)")
_CONDITION = re.compile(
    r"^\W*(?:when|whenever|if|once|after|while|unless|until|in case|for)\b"
    r"|(?:とき|時|場合|際)[はにも、]|なら、?$|たら、?$",
    re.IGNORECASE,
)
_CALL = re.compile(
    r"\b(?:call|calls|calling|use|using|run|invoke|invoking|try|send|make|query|open|go back to)\b",
    re.IGNORECASE,
)
_CALL_JA = re.compile(
    r"^`?\s*[をで].{0,12}?(?:呼[ばぶびべ]|使[わういえっ]|実行|調べ|送[らるりっ]|行[わうい])"
)
_NOT = re.compile(
    r"\b(?:do not|don['’]t|never|avoid|must not|should not|stop|without|instead of|rather than)\b",
    re.IGNORECASE,
)
_NOT_JA = re.compile(r"(?:ない|ません|せず|ずに|避け|控え|禁止|やめ)")
_LATER = re.compile(r"\b(?:before|until|unless|without|instead of|rather than)\b", re.IGNORECASE)
_LATER_JA = re.compile(r"前に|までは|代わりに")
_AND = re.compile(r"(?<!\s)\s*(?:and|or|,|、|と|や)\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BulletAdvice:
    """The tools that a text recommends, and those that it advises against."""

    calls: frozenset[str] = frozenset()
    avoids: frozenset[str] = frozenset()


def parse_bullet_advice(text: str, names: Iterable[str]) -> BulletAdvice:
    """The advice of `text` on the tools with these names. A tool with both is ignored."""
    calls: set[str] = set()
    avoids: set[str] = set()
    clauses = [c for c in _CLAUSE.split(text) if not _CONDITION.search(c.strip())]
    for name in {n for n in names if len(n) > 2}:
        pattern = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w])")
        for clause in clauses:
            for match in pattern.finditer(clause):
                if not _is_tool_name(name, clause, match.start(), match.end()):
                    continue
                before, after = clause[: match.start()], clause[match.end() :]
                if _is_discouraged(before, after):
                    avoids.add(name)
                elif _is_recommended(before, after):
                    calls.add(name)
    both = calls & avoids
    return BulletAdvice(frozenset(calls - both), frozenset(avoids - both))


def _is_tool_name(name: str, clause: str, start: int, end: int) -> bool:
    """`get_order` and `showDoc` are always names; `Search` only if the text marks it."""
    if re.search(r"[_.\d]|[a-z][A-Z]", name):
        return True
    marked = clause[end : end + 1] in tuple("([`") or clause[max(0, start - 1) : start] == "`"
    called = re.search(r"\b(?:call|calls|calling|invoke|run)\s+$", clause[:start], re.IGNORECASE)
    return marked or bool(called) or clause[end : end + 6].strip().startswith("call")


def _is_recommended(before: str, after: str) -> bool:
    japanese = _CALL_JA.search(after)
    if japanese:
        rest = after[japanese.end() :][:8]
        return not _NOT_JA.search(rest) and not _LATER_JA.search(rest)
    return bool(_CALL.search(before)) and not _NOT.search(before) and not _LATER.search(before)


def _is_discouraged(before: str, after: str) -> bool:
    """The first name after "do not call", and those joined to it."""
    negations = list(_NOT.finditer(before))
    if negations:
        between = before[negations[-1].end() :]
        return bool(re.match(r"\s*(?:\w+\s+){0,3}[`“\"]?$", between) or _AND.search(between)) and (
            not _LATER.search(between)
        )
    japanese = _CALL_JA.search(after)
    return bool(japanese and _NOT_JA.search(after[japanese.end() :][:8]))
