"""What is to be done about a bullet that a run used and failed all the same. Pure.

A bullet that the run named or cited before it failed is narrowed: its `when_to_use` says where it
is not proven. Only names of tools go into it, never words of the trace. Nothing is done where
the run went against the advice, where the bullet has proven useful, or where the text says so
already: then the verdict is all there is (`weaken`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from apps.memory_api.playbook.evaluate import Verdict
from apps.memory_api.playbook.schemas import DeltaContextItem
from apps.memory_api.playbook.usefulness import usefulness
from apps.memory_api.reflection.findings.compose import unrepaired
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.reflection.judge import BROKEN, FAILED, OWNED
from apps.memory_api.reflection.used import UsedBullet
from apps.memory_api.traces.schemas import OutcomeType

MOST_CAVEATS = 2
PROVEN = 0.5
"""Usefulness above which a single failure changes no text."""
_TOOL = re.compile(r"[\w.\-/]{1,60}")
_WORDS = {
    "en": ("Not where {tool} is wrong for the request.", "Not proven where {tool} fails."),
    "ja": ("{tool} が依頼に合わない場合を除く。", "{tool} が失敗する場合は未確認。"),
}
_CAVEAT = re.compile(
    r"\s*(?:Not where [\w.\-/]+ is wrong for the request\."
    r"|Not proven where [\w.\-/]+ fails\."
    r"|[\w.\-/]+ が依頼に合わない場合を除く。"
    r"|[\w.\-/]+ が失敗する場合は未確認。)"
)


@dataclass(frozen=True)
class Hint:
    """`revise`: `when_to_use` is what the bullet should say from now on. `weaken`: its verdict."""

    key: str
    action: Literal["revise", "weaken"]
    reason: str
    when_to_use: str | None = None
    trace_id: UUID | None = None

    def delta(self) -> DeltaContextItem | None:
        """The edit it comes to; None for `weaken`."""
        if self.when_to_use is None:
            return None
        said = {"when_to_use": self.when_to_use, "reasoning": self.reason}
        return DeltaContextItem.model_validate({"type": "UPDATE", "bullet_id": self.key, **said})


def hints(
    used: Sequence[UsedBullet],
    verdicts: Iterable[Verdict],
    found: Findings,
    outcome: OutcomeType,
    *,
    trace_id: UUID | None = None,
) -> list[Hint]:
    """One hint on each bullet that a failed run named or cited; `verdicts` are those of `judge` on
    the same run.
    """
    if outcome not in FAILED:
        return []
    said: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.judge in ("test", "rules"):
            said.setdefault(verdict.key, []).append(verdict)
    made: list[Hint] = []
    for bullet in used:
        told = said.get(bullet.key, [])
        broken = any(verdict.evidence.get("why") == BROKEN for verdict in told)
        if bullet.how in OWNED and not broken and not bullet.bullet.pinned:
            made.append(_hint(bullet, told, found, trace_id))
    return made


def _hint(
    used: UsedBullet, told: Sequence[Verdict], found: Findings, trace_id: UUID | None
) -> Hint:
    harm = next((v for v in told if v.tag == "harmful"), None)
    tool = str(harm.evidence.get("step", "")) if harm else _blamed(found)
    caveat = _caveat(tool, found.language, sure=harm is not None)
    proven = usefulness(used.bullet.helpful, used.bullet.harmful) > PROVEN
    before = used.bullet.when_to_use
    if caveat is None or caveat in before or (proven and harm is None):
        reason = f"A run that used it ({used.how}) failed."
        return Hint(used.key, "weaken", reason, trace_id=trace_id)
    reason = (harm.reason if harm else None) or f"A run that {used.how} it failed at {tool}."
    return Hint(used.key, "revise", reason, narrowed(before, caveat), trace_id)


def narrowed(when_to_use: str, caveat: str) -> str:
    """The condition with one caveat more; the oldest goes when there are too many."""
    kept = [match.group().strip() for match in _CAVEAT.finditer(when_to_use)]
    base = _CAVEAT.sub("", when_to_use).rstrip()
    kept = [*kept, caveat][-MOST_CAVEATS:]
    if base and base[-1] not in ".。!?！？":
        base += "。" if re.search(r"[\u3041-\u3096]", base) else "."
    return " ".join(part for part in (base, *kept) if part)


def _blamed(found: Findings) -> str:
    """The tool of the step behind a failure, as far as the run shows one."""
    if found.streaks:
        return found.streaks[0].tool
    last = unrepaired(found)
    return last.tool if last else ""


def _caveat(tool: str, language: str, *, sure: bool) -> str | None:
    if not _TOOL.fullmatch(tool):
        return None
    wrong, unproven = _WORDS.get(language, _WORDS["en"])
    return (wrong if sure else unproven).format(tool=tool)
