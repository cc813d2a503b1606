"""Where a decisive call got its arguments, which values were carried through the run, and how one
read led to the next."""

from __future__ import annotations

import re
import unicodedata

from apps.memory_api.reflection.findings.schemas import Hop, Origin
from apps.memory_api.traces.quotes import cut, first_sentence, plain
from apps.memory_api.traces.steps import Run, Step

_RESPONSE = 30_000
_YES = re.compile(
    r"^\W*(?:yes|yeah|yep|sure|ok(?:ay)?|please (?:do|go|proceed)|go ahead|that(?:'s"
    r"| is) (?:correct|right|fine)|correct"
    r"|はい|ええ|それで|大丈夫|そちらで)",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"think|calculat|note|transfer|hand_?over", re.IGNORECASE)
_LOOKS_UP = re.compile(r"search|look_?up|find|browse|wiki|query", re.IGNORECASE)
_COINED = re.compile(r"[\d_#@]")


def find_origin(run: Run) -> Origin | None:
    """Of the last changing call that was accepted (else the last call with named arguments)."""
    usable = (s for s in run.steps if s.args and not s.failure and s.verdict is None)
    named = [s for s in usable if "" not in s.args and not _ASIDE.search(s.tool)]
    if not named:
        return None
    write = next((s for s in reversed(named) if s.writes), None)
    if write is None and any(s.response for s in run.steps):
        return None
    step = write or named[-1]
    from_tools: list[tuple[str, str, str]] = []
    from_user: list[tuple[str, str]] = []
    for name, value in list(step.args.items())[:12]:
        tool = _tool_that_named(run, step, value)
        if tool:
            from_tools.append((name, cut(value, 40), tool))
        elif (at := _user_that_named(run, step, value)) is not None:
            from_user.append((name, run.ids[at]))
    user = run.before(run.users, step.at)
    yes = first_sentence(run.text(user), 90) if user is not None and step.writes else ""
    return Origin(
        event=step.event,
        tool=step.tool,
        call=step.call,
        from_tools=tuple(from_tools[:4]),
        from_user=tuple(from_user[:6]),
        carried=_carried(run.steps, step),
        confirmed=yes if _YES.match(yes) else None,
        writes=step.writes,
    )


def _tool_that_named(run: Run, step: Step, value: str) -> str | None:
    if len(value) < 5 or not _COINED.search(value):
        return None
    for other in reversed(run.steps[:300]):
        if (
            other.at < step.at
            and other.response
            and not other.writes
            and value in other.response[:_RESPONSE]
        ):
            given = any(value in v for v in other.args.values())
            return None if given else other.tool
    return None


def _user_that_named(run: Run, step: Step, value: str) -> int | None:
    wanted = _tight(value)
    if not wanted or (len(wanted) < 2 and not wanted.isdigit()):
        return None
    for at in reversed([u for u in run.users[:300] if u < step.at]):
        if wanted in _tight(run.text(at)[:4_000]):
            return at
    return None


def _tight(text: str) -> str:
    return re.sub(r"[\s、。，,.・'\"「」『』]", "", unicodedata.normalize("NFKC", text)).casefold()


def _carried(steps: list[Step], last: Step) -> tuple[tuple[str, str], ...]:
    """Arguments of the last call that an earlier call of another tool already had with the same
    value."""
    found: list[tuple[str, str]] = []
    for name, value in last.args.items():
        if any(
            s.at < last.at and s.tool != last.tool and s.args.get(name) == value
            for s in steps[:300]
        ):
            found.append((name, cut(value, 40)))
    return tuple(found[:3])


def find_hops(run: Run) -> tuple[Hop, ...]:
    """Free-text calls whose argument an earlier response had named while the question had not; at
    most three."""
    question = plain(run.text(run.users[0])) if run.users else plain(run.task)
    found: list[Hop] = []
    searches = [
        s for s in run.steps[:60] if s.args.get("") and not s.failure and _LOOKS_UP.search(s.tool)
    ]
    for n, step in enumerate(searches[1:], 1):
        name = step.args[""].strip()
        key = plain(re.sub(r"\s*\([^)]*\)$", "", name))
        if len(key) < 4 or len(name) > 80 or key in question or step.verdict is not None:
            continue
        for other in searches[max(0, n - 4) : n]:
            if key.split()[0] in other.response[:_RESPONSE].casefold() and key in plain(
                other.response[:4_000]
            ):
                found.append(Hop(step.event, other.call, step.call, cut(name, 60)))
                break
    return tuple(found[:3])
