"""Messages that decline, hand-overs to people, and changes made without the consent the
instructions ask for."""

from __future__ import annotations

import re

from apps.memory_api.reflection.findings.schemas import Refusal, Unconfirmed
from apps.memory_api.traces.quotes import cut, first_sentence
from apps.memory_api.traces.steps import Run

_DECLINES = re.compile(
    r"\bI(?:'m| am) (?:sorry|unable|not able|afraid)\b|\bI (?:cannot|can't|can not|won't)\b"
    r"|\bunfortunately\b"
    r"|\b(?:cannot|can't|not) be (?:cancell?ed|changed|modified|updated|refunded|processed|done"
    r"|removed)\b"
    r"|\bnot (?:allowed|permitted|possible|eligible)\b|\bagainst (?:the|our) policy\b"
    r"|できません|できかねます|いたしかねます|お断り|お答えできません|対応しておりません"
    r"|承れません",
    re.IGNORECASE,
)
_NOTE = re.compile(r"^\W*(?:please )?note\b", re.IGNORECASE)
_HAND_OVER = re.compile(r"transfer|hand_?over|escalate", re.IGNORECASE)
_CONSENT_RULE = re.compile(
    r"\b(?:explicit|user)\b[^.\n]{0,40}\bconfirm|(?:確認|同意)を(?:得|取)", re.IGNORECASE
)
_YES = re.compile(
    r"\b(?:yes|yeah|yep|sure|ok(?:ay)?|please|confirm\w*|proceed|go ahead|correct|right"
    r"|agree\w*|do it|fine|sounds good"
    r"|let's|I'll (?:go|take)|I'd like|go with|that works|thank\w*|perfect|great)\b|はい|お願い"
    r"|大丈夫|それで|いいです|了解|進めて|ぜひ",
    re.IGNORECASE,
)


def find_refusals(run: Run) -> tuple[Refusal, ...]:
    """At most five, in order: messages that decline, and calls that hand the user over."""
    found: list[Refusal] = []
    for at in run.said[:400] if run.steps or run.rules else ():
        text = run.text(at)[:2_000]
        hit = _DECLINES.search(text)
        quote = _around(text, hit.start()) if hit else ""
        if quote and not _NOTE.match(quote):
            found.append(Refusal(run.ids[at], "declined", quote, _asked(run, at), _later(run, at)))
    for step in run.steps:
        if _HAND_OVER.search(step.tool) and not step.failure:
            reason = next(iter(step.args.values()), "")
            found.append(
                Refusal(step.event, "handed_over", first_sentence(reason), _asked(run, step.at))
            )
    order = {event: n for n, event in enumerate(run.ids)}
    return tuple(sorted(found, key=lambda r: order.get(r.event, 0))[-5:])


def _around(text: str, at: int) -> str:
    start = max(text.rfind(mark, 0, at) for mark in (". ", "\n", "。", "! ", "? ", "! ")) + 1
    ends = [e for e in (text.find(mark, at + 3) for mark in (". ", ".\n", "\n", "。")) if e >= 0]
    return cut(text[start : min(ends, default=len(text)) + 1].strip(" -*\n"))


def _asked(run: Run, at: int) -> str:
    user = run.before(run.users, at)
    return first_sentence(run.text(user), 120) if user is not None else ""


def _later(run: Run, at: int) -> str | None:
    """The first changing call within the next four steps after the message."""
    after = [s for s in run.steps if s.at > at][:4]
    return next(
        (s.call for s in after if s.writes and not s.failure and not _HAND_OVER.search(s.tool)),
        None,
    )


def _consent_rule(run: Run) -> str | None:
    for at in run.rules[:3]:
        text = run.text(at)[:20_000]
        hit = _CONSENT_RULE.search(text)
        if hit:
            return _around(text, hit.start())
    return None


def find_unconfirmed(run: Run) -> tuple[Unconfirmed, ...]:
    """Changing calls whose last user message holds no word of consent, where the instructions ask
    for it; at most two."""
    rule = _consent_rule(run)
    if rule is None:
        return ()
    found: list[Unconfirmed] = []
    for step in run.steps[:400]:
        user = run.before(run.users, step.at)
        if not step.writes or _HAND_OVER.search(step.tool) or user is None:
            continue
        if not _YES.search(run.text(user)[:3_000]):
            found.append(
                Unconfirmed(
                    step.event,
                    step.tool,
                    cut(rule.strip(" -"), 140),
                    first_sentence(run.text(user), 120),
                )
            )
    return tuple(found[:2])
