"""Characters that a model reads and a person does not see."""

from __future__ import annotations

import re

_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
)
HIDDEN = re.compile(
    "[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e0fff]"
    f"|[{_INVISIBLE}]{{3,}}"
    f"|(?<=[^\\W\\d_\u2139])(?:[\ufe00-\ufe0f][{_INVISIBLE}]?|[{_INVISIBLE}]{{2}})"
)
"""Tag characters and their supplement, overrides of the direction, runs of other invisible
characters, and those behind a letter that has no use for them. Others belong to words and emoji.
"""
