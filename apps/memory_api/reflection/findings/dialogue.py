"""A conversation without tools: who asks, what is taken up, what is said over and over, where the
user is displeased."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from apps.memory_api.reflection.findings.schemas import Dialogue
from apps.memory_api.traces.arguments import as_mapping
from apps.memory_api.traces.quotes import cut, first_sentence
from apps.memory_api.traces.steps import Run

_MESSAGES = 200
_WORD = re.compile(
    r"[ァ-ヴー]{3,}|[一-龠々]{2,}(?=[にをはがでとのもやへ、。！？!?\s・」』）)ァ-ヴA-Z]|$)"
    r"|[A-Za-z][A-Za-z\-']{4,}"
)
_ASKS = re.compile(r"[?？]|(?:ですか|ますか|でしょうか|ませんか)[。!！]?\s*$")
_UNHAPPY = re.compile(
    r"面白く(?:ない|無い)|つまらな|違います|そうじゃな|ちょっと違|分かりにく|わかりにく"
    r"|困ります|がっかり|怒|もういい|信用しきるのが難し"
    r"|not (?:helpful|what I)|wrong again|useless|frustrat|disappoint|that's not|doesn't work"
    r"|still not|unacceptable",
    re.IGNORECASE,
)
_LEAD = re.compile(r"^(?:最近|今日|毎日|本当|今年|昨日|明日)(?=.)")
_COMMON = {
    "元気",
    "大変",
    "素敵",
    "毎日",
    "必須",
    "色々",
    "方法",
    "大切",
    "一番",
    "特に",
    "確か",
    "興味",
    "今年",
    "言葉",
    "面白",
    "問題",
    "発見",
    "機会",
    "私自身",
    "今日",
    "本当",
    "自分",
    "時間",
    "最近",
    "場所",
    "感じ",
    "普段",
    "大丈夫",
    "非常",
    "時期",
    "about",
    "would",
    "could",
    "there",
    "thank",
    "please",
}
_PHRASES = re.compile(r"[。！？!?\n、,]")


def ratings_of(ground_truth: Any) -> tuple[tuple[str, float], ...]:
    """Ratings, lowest first, when the ground truth is nothing but two or more numbers by
    criterion."""
    given = as_mapping(ground_truth)
    if len(given) < 2:
        return ()
    pairs: list[tuple[str, float]] = []
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            return ()
        pairs.append((cut(str(name), 40), float(value)))
    return tuple(sorted(pairs, key=lambda p: p[1]))


def find_dialogue(run: Run, ground_truth: Any) -> Dialogue | None:
    """None when the run has calls or fewer than two replies to a user."""
    if run.steps or len(run.said) < 2 or len(run.users) < 2:
        return None
    pairs = [
        (u, a)
        for a in run.said[:_MESSAGES]
        if (u := run.before(run.users[:_MESSAGES], a)) is not None
    ]
    if not pairs:
        return None
    taken = [_shared(run.text(u), run.text(a)) for u, a in pairs]
    words = Counter(w for shared in taken for w in shared)
    replies = [run.text(a)[:3_000] for a in run.said[:_MESSAGES]]
    unhappy = next((u for u in run.users[:_MESSAGES] if _UNHAPPY.search(run.text(u)[:2_000])), None)
    before = run.before(run.said, unhappy) if unhappy is not None else None
    drew = _drew(run, pairs)
    longest = max(run.said[:_MESSAGES], key=lambda a: len(run.text(a)))
    later = run.said[1:_MESSAGES]
    shortest = min(later, key=lambda a: len(run.text(a)))
    return Dialogue(
        turns=len(run.users),
        replies=len(run.said),
        asked_back=sum(1 for text in replies if _ASKS.search(text[-120:])),
        taken_up=sum(1 for shared in taken if shared),
        words=tuple(w for w, _ in words.most_common(4)),
        repeated=_repeated(replies),
        unhappy=first_sentence(run.text(unhappy), 100) if unhappy is not None else None,
        unhappy_event=run.ids[unhappy] if unhappy is not None else None,
        before_unhappy=cut(run.text(before), 100) if before is not None else None,
        before_event=run.ids[before] if before is not None else None,
        topic=_topic(run),
        longest_event=run.ids[longest],
        ratings=ratings_of(ground_truth),
        drew=cut(run.text(drew), 90) if drew is not None else None,
        drew_event=run.ids[drew] if drew is not None else None,
        shortest=cut(run.text(shortest), 80),
        shortest_event=run.ids[shortest],
    )


def _drew(run: Run, pairs: list[tuple[int, int]]) -> int | None:
    """The reply that the user's longest message answers."""
    after = [
        (len(run.text(u)), a)
        for u in run.users[1:_MESSAGES]
        if (a := run.before(run.said, u)) is not None
    ]
    return max(after)[1] if after and len(pairs) > 1 else None


def _shared(message: str, reply: str) -> list[str]:
    said = set(_WORD.findall(message[:1_500])) - _COMMON
    return [w for w in dict.fromkeys(_WORD.findall(reply[:1_500])) if w in said]


def _repeated(replies: list[str]) -> tuple[tuple[str, int], ...]:
    """Clauses of 6 to 40 characters that stand word for word in three or more replies; the most
    frequent two. Also long words (4+ characters) that half of the replies repeat."""
    clauses: Counter[str] = Counter()
    for reply in replies:
        clauses.update({c.strip() for c in _PHRASES.split(reply) if 6 <= len(c.strip()) <= 40})
    found = [(c, n) for c, n in clauses.most_common(4) if n >= 3]
    return tuple(found[:2])


def _topic(run: Run) -> str:
    """The words users say most, at most three, in the order they came up."""
    words: Counter[str] = Counter()
    for at in run.users[:_MESSAGES]:
        words.update(
            {
                w
                for x in _WORD.findall(run.text(at)[:1_500])
                if (w := _LEAD.sub("", x)) not in _COMMON and len(w) > 1
            }
        )
    top = {w for w, _ in words.most_common(3)}
    spoken = (x for at in run.users[:_MESSAGES] for x in _WORD.findall(run.text(at)[:1_500]))
    order = [w for x in spoken if (w := _LEAD.sub("", x)) in top]
    return (
        "・".join(dict.fromkeys(order)) if run.language == "ja" else ", ".join(dict.fromkeys(order))
    )
