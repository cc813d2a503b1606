"""Proposals to narrow when a bullet applies, after a run that used it failed.

If the run named or cited the bullet, its `when_to_use` gets a caveat. A caveat contains the name of
a tool and no other text of the trace. There is none if the run did not follow the advice, if the
counters show that the bullet is useful, or if the bullet has the caveat already: then only the
verdict is recorded (`weaken`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from uuid import UUID

from memory_api.playbooks.models import RevisionHint
from memory_api.playbooks.usefulness import usefulness
from memory_api.playbooks.verdicts.record import NewVerdict
from memory_api.reflection.bullet_usage import UsedBullet
from memory_api.reflection.credit.judge import (
    ACKNOWLEDGED_USES,
    ADVICE_IGNORED,
    FAILURE_OUTCOMES,
    KEPT_FROM,
)
from memory_api.reflection.rules import context_language
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of

MAX_CAVEATS = 2
PROVEN_USEFULNESS = 0.5
"""Usefulness (0 to 1) above which one failure does not change the text of a bullet."""
_TOOL = re.compile(r"[\w.\-/]{1,60}")
_CAVEATS = {
    "en": {
        "called": "Does not apply if the request does not require `{tool}`.",
        "avoided": "Does not apply if the request requires `{tool}`.",
        "unknown": "Not verified for runs in which `{tool}` fails.",
    },
    "ja": {
        "called": "依頼が `{tool}` を必要としない場合は適用しない。",
        "avoided": "依頼が `{tool}` を必要とする場合は適用しない。",
        "unknown": "`{tool}` が失敗する実行では未確認。",
    },
}
_CAVEAT = re.compile(
    r"(?<!\s)\s*(?:Does not apply if the request (?:does not require|requires) `[\w.\-/]+`\."
    r"|Not verified for runs in which `[\w.\-/]+` fails\."
    r"|依頼が `[\w.\-/]+` を必要と(?:しない|する)場合は適用しない。"
    r"|`[\w.\-/]+` が失敗する実行では未確認。)"
)


def revision_hints(
    used: Sequence[UsedBullet],
    verdicts: Iterable[NewVerdict],
    facts: Sequence[Fact],
    context: ReflectionContext,
    *,
    trace_id: UUID | None = None,
) -> list[RevisionHint]:
    """One hint for each bullet that a failed run named or cited. `verdicts` are those of `judge` on
    the same run.
    """
    if context.outcome not in FAILURE_OUTCOMES:
        return []
    language, failing_tool = context_language(context), _failing_tool(facts)
    by_key: dict[str, list[NewVerdict]] = {}
    for verdict in verdicts:
        if verdict.judge in ("test", "rules"):
            by_key.setdefault(verdict.key, []).append(verdict)
    hints: list[RevisionHint] = []
    for bullet in used:
        given = by_key.get(bullet.key, [])
        broken = any(verdict.evidence.get("why") == ADVICE_IGNORED for verdict in given)
        if bullet.usage in ACKNOWLEDGED_USES and not broken and not bullet.bullet.pinned:
            hints.append(_hint(bullet, given, failing_tool, language, trace_id))
    return hints


def _hint(
    used: UsedBullet,
    given: Sequence[NewVerdict],
    failing_tool: str,
    language: str,
    trace_id: UUID | None,
) -> RevisionHint:
    harm = next((v for v in given if v.tag == "harmful"), None)
    tool = str(harm.evidence.get("step", "")) if harm else failing_tool
    caveat = _caveat(tool, language, harm)
    proven = usefulness(used.bullet.helpful, used.bullet.harmful) > PROVEN_USEFULNESS
    before = used.bullet.when_to_use
    if caveat is None or caveat in before or (proven and harm is None):
        reason = f"A run that used this bullet ({used.usage}) failed."
        return RevisionHint(used.key, "weaken", reason, trace_id=trace_id)
    reason = (
        harm.reason if harm else None
    ) or f"A run that {used.usage} this bullet failed; `{tool}` returned errors."
    return RevisionHint(used.key, "revise", reason, add_caveat(before, caveat), trace_id)


def add_caveat(when_to_use: str, caveat: str) -> str:
    """The condition with another caveat; the oldest caveat is dropped above `MAX_CAVEATS`."""
    kept = [match.group().strip() for match in _CAVEAT.finditer(when_to_use)]
    base = _CAVEAT.sub("", when_to_use).rstrip()
    kept = [*kept, caveat][-MAX_CAVEATS:]
    if base and base[-1] not in ".。!?！？":
        base += "。" if re.search(r"[\u3041-\u3096]", base) else "."
    return " ".join(part for part in (base, *kept) if part)


def _failing_tool(facts: Sequence[Fact]) -> str:
    """The tool of the last failed call after which its tool did not work any more; "" if none."""
    failed = [f for f in facts_of(facts, FactKind.FAILED_CALL) if not f.values["works_later"]]
    return str(failed[-1].values["tool"]) if failed else ""


def _caveat(tool: str, language: str, harm: NewVerdict | None) -> str | None:
    if not _TOOL.fullmatch(tool):
        return None
    kind = "unknown"
    if harm is not None:
        kind = "avoided" if harm.evidence.get("why") == KEPT_FROM else "called"
    return _CAVEATS.get(language, _CAVEATS["en"])[kind].format(tool=tool)
