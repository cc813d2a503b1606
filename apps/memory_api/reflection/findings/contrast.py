"""What a success did that its failed attempts did not, and the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apps.memory_api.reflection.findings.schemas import Again, Attempt, Contrast
from apps.memory_api.traces.arguments import Change, differences
from apps.memory_api.traces.quotes import cut, plain
from apps.memory_api.traces.schemas import OutcomeType
from apps.memory_api.traces.steps import Run, Step, read

_COMPARED = 8
_SHOWN = 3
_WRITES = 60


def find_contrast(run: Run, outcome: OutcomeType, attempts: Sequence[Attempt]) -> Contrast | None:
    """Against the latest attempts that ended the other way; None when there is none or nothing
    differs.

    A success is set against all of them together (what no failed attempt did), a failure against
    the latest success."""
    if outcome is OutcomeType.PARTIAL or not run.steps:
        return None
    won = outcome is OutcomeType.SUCCESS
    others = [
        a
        for a in attempts
        if a.outcome is not OutcomeType.PARTIAL and (a.outcome is OutcomeType.SUCCESS) != won
    ]
    if not others:
        return None
    near = others[-_COMPARED:] if won else others[-1:]
    runs = [read(a.events) for a in near]
    if not any(r.steps for r in runs):
        return None
    their_steps = [s for r in runs for s in r.steps]
    latest = runs[-1].steps or their_steps
    theirs, ours = {_key(s) for s in their_steps}, {_key(s) for s in run.steps}
    only_here = _distinct(s for s in run.steps if _key(s) not in theirs)
    only_there = _distinct(s for s in latest if _key(s) not in ours)
    tool, step, changes = _same_write(run.steps, latest, won)
    answer = _other_answer(run.steps, latest)
    if not only_here and not only_there and not answer:
        return None
    first = step or (only_here[0] if only_here else None)
    return Contrast(
        we_succeeded=won,
        trace_id=near[-1].trace_id,
        event=first.event if first else None,
        ours=tuple(s.call for s in _telling(only_here)),
        theirs=tuple(s.call for s in _telling(only_there)),
        tools_ours=_tools(run.steps, their_steps),
        tools_theirs=_tools(latest, run.steps),
        tool=tool,
        changes=changes,
        others=len(others),
        their_answer=answer,
        unquoted=_unquoted(only_here, only_there) if won else _unquoted(only_there, only_here),
        held_back=_held_back(run.steps, latest) if won else _held_back(latest, run.steps),
    )


def find_again(run: Run, outcome: OutcomeType, attempts: Sequence[Attempt]) -> Again | None:
    """Earlier attempts that are this one over again, call for call; None when there is none."""
    if not run.steps:
        return None
    ours = [_key(s) for s in run.steps]
    near = [a for a in attempts[-_COMPARED:] if a.outcome is outcome]
    same = [a for a in near if [_key(s) for s in read(a.events).steps] == ours]
    return Again(len(same), same[-1].trace_id, run.steps[0].call) if same else None


def _key(step: Step) -> tuple[str, str]:
    tool, args = step.key
    return tool, " ".join(args.casefold().split())


def _distinct(steps: Iterable[Step]) -> list[Step]:
    seen: dict[tuple[str, str], Step] = {}
    for step in steps:
        if step.args and not _silent(step) and step.verdict is None:
            seen.setdefault(_key(step), step)
    return list(seen.values())


def _silent(step: Step) -> bool:
    return step.tool.casefold() in {"think", "calculate", "note"}


def _telling(steps: list[Step]) -> list[Step]:
    """Changing calls first, then those that worked, in their order; at most three."""
    ranked = sorted(
        range(len(steps)), key=lambda n: (not steps[n].writes, bool(steps[n].failure), n)
    )[:_SHOWN]
    return [steps[n] for n in sorted(ranked)]


def _tools(have: Sequence[Step], lack: Sequence[Step]) -> tuple[str, ...]:
    missing = {s.tool for s in lack}
    return tuple(
        dict.fromkeys(
            s.tool
            for s in have
            if s.tool and s.tool not in missing and not _silent(s) and s.verdict is None
        )
    )[:_SHOWN]


def _other_answer(ours: list[Step], theirs: list[Step]) -> str | None:
    mine = next((s.args.get("", "") for s in reversed(ours) if s.verdict is not None), None)
    other = next((s.args.get("", "") for s in reversed(theirs) if s.verdict is not None), None)
    return cut(other, 80) if mine and other and mine != other else None


def _unquoted(good: list[Step], bad: list[Step]) -> str | None:
    """A call of the good side that the bad side made with quotation marks around the same words."""
    quoted = {
        plain(s.args[""])
        for s in bad
        if s.args.get("", "").strip()[:1] in tuple("\"'“「") and s.failure
    }
    return next(
        (s.tool for s in good if s.args.get("") and plain(s.args[""]) in quoted and not s.failure),
        None,
    )


def _held_back(good: list[Step], bad: list[Step]) -> str | None:
    """The first changing tool that only the failed side used."""
    used = {s.tool for s in good}
    return next((s.tool for s in bad if s.writes and not s.failure and s.tool not in used), None)


def _same_write(
    ours: list[Step], theirs: list[Step], won: bool
) -> tuple[str | None, Step | None, tuple[Change, ...]]:
    """The first changing call both sides made with other arguments, and the difference from failed
    to successful."""
    theirs = [t for t in theirs if t.writes and not t.failure][:_WRITES]
    for step in [s for s in ours if s.writes][:_WRITES]:
        if not step.writes or step.failure or step.verdict is not None or "" in step.args:
            continue
        same = [t for t in theirs if t.tool == step.tool and not t.failure]
        if not same or any(not differences(t.args, step.args) for t in same):
            continue
        other = min(same, key=lambda t: len(differences(t.args, step.args)))
        pair = (other.args, step.args) if won else (step.args, other.args)
        changes = differences(*pair)
        if len(changes) <= max(3, len(step.args) // 2):
            return step.tool, step, changes[:4]
    return None, None, ()
