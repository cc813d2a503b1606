"""Reasons that Hansei itself stored with a change, in the language of the person who reads them.
Reasons of people and models stay as they wrote them.
"""

from __future__ import annotations

import re

from memory_api.console.translations import N_, Translation

REASONS = (
    N_("Learned from trace %(trace)s."),
    N_("From the lessons of %(count)s traces."),
    N_("Harmful verdicts: %(harmful)s. Helpful verdicts: %(helpful)s."),
    N_("Contradicts bullet %(key)s."),
    N_("Matches bullet %(key)s."),
    N_("The same words as %(keys)s."),
    N_("No bullet matches this lesson."),
    N_("Confirmed by a second independent trace."),
    N_("The new wording quotes text of a tool or a user from one trace."),
    N_(
        "Quotes text of a tool or a user from one trace. A second independent trace or a person "
        "confirms it."
    ),
    N_("Archived: the playbook exceeds its bullet limit."),
    N_("%(count)s more reasons: see the versions of the bullets."),
)
_PATTERNS = [
    (re.compile(re.sub(r"%\\\((\w+)\\\)s", r"(?P<\1>.{1,200})", re.escape(text))), text)
    for text in REASONS
]
_AFTER_KEY = re.compile(r"((?:\S+-\d+: )?)(.*)")


def translate_reason(reason: str | None, translation: Translation) -> str:
    """The reason of a change; the reasons of several bullets are lines that begin with the key."""
    parts = [_AFTER_KEY.fullmatch(line) for line in (reason or "").splitlines()]
    return "\n".join(part[1] + _translate(part[2], translation) for part in parts if part)


def _translate(text: str, translation: Translation) -> str:
    for pattern, known in _PATTERNS:
        if found := pattern.fullmatch(text):
            return translation.gettext(known) % found.groupdict()
    return text
