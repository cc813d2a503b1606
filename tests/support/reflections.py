"""What a model answers about a run, whatever the form in which the run was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.stub_provider import answer

CAUSE, EXPLANATION = "A line break ends a line.", "The report shows an empty last line."


def reflected(
    *sentences: str,
    text: str = EXPLANATION,
    cause: str = "",
    rules: Iterable[Any] = (),
    verdicts: Iterable[Mapping[str, str]] = (),
) -> Any:
    """`sentences` are rules without a condition. `verdicts` as S1 (`bullet_id`, `reason`) or S4
    (`name`, `rationale`) writes them.
    """
    return answer(
        {
            "root_cause": cause,
            "explanation": text,
            "rules": [*({"do": sentence} for sentence in sentences), *rules],
            "verdicts": [
                {
                    "key": each.get("bullet_id") or each["name"],
                    "tag": each["tag"],
                    "reason": each.get("reason") or each["rationale"],
                }
                for each in verdicts
            ],
        }
    )
