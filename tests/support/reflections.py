"""What a model answers about a run, whatever the form in which the run was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.stub_provider import answer

CAUSE, EXPLANATION = "A line break ends a line.", "The report shows an empty last line."


def reflected(
    *rules: str,
    text: str = EXPLANATION,
    cause: str = "",
    verdicts: Iterable[Mapping[str, str]] = (),
) -> Any:
    """`verdicts` as S1 (`bullet_id`, `reason`) or S4 (`name`, `rationale`) writes them."""
    return answer(
        {
            "root_cause": cause,
            "explanation": text,
            "rules": [{"do": rule} for rule in rules],
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
