"""Runs of domains that no vocabulary was written on, with the sentences that a reflection of the
rules engine must and must not have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from memory_api.reflection.rules.reflect import reflect
from tests.support.runs import Row, run

NEVER = re.compile(
    r"accepted|made up|invented|no error|worked|trace does not|explain|last sa(?:id|ys)|proven"
    r"|guess|wrong(?:ly)?\b|should have",
    re.IGNORECASE,
)
"""What no sentence about these runs may say: praise, blame, and that nothing is known."""


@dataclass(frozen=True)
class Domain:
    """`says` must appear, `silent` must not. Without `says` nothing is found. `advice`: how the
    strategy starts; "" if there must be none.
    """

    name: str
    rows: list[Row]
    outcome: str = "failure"
    says: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    advice: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    ground_truth: Any = None
    source: str | None = None
    """The event that decided: the first source of the reflection."""


def check_domain(domain: Domain) -> None:
    context = run(domain.rows, domain.outcome, tools=list(domain.tools))
    result = reflect(context, ground_truth=domain.ground_truth)
    if not domain.says:
        assert result is None, result
        return
    assert result is not None
    text = result.reflection_text
    for sentence in domain.says:
        assert sentence in text, text
    evidence = re.sub(r"“[^”]*”|`[^`]*`|^Task: .*? Outcome", "", text)
    for word in domain.silent:
        assert word not in evidence, text
    claims = evidence.replace("returned no detected error", "").replace(
        "without a detected error", ""
    )
    assert not NEVER.search(claims), text
    if domain.advice is not None:
        advice = result.strategy_text
        assert (advice or "").startswith(domain.advice) if domain.advice else advice is None, advice
    if domain.source:
        assert result.source_event_ids[0] == domain.source, result.source_event_ids
    assert set(result.source_event_ids) <= {f"e{n}" for n in range(len(domain.rows))}
