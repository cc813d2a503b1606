"""A call that failed, then worked: what changed between the two, and where the new value came
from."""

from __future__ import annotations

from apps.memory_api.reflection.findings.errors import brief, offers
from apps.memory_api.reflection.findings.kinds import kind_of
from apps.memory_api.reflection.findings.schemas import Retry
from apps.memory_api.traces.arguments import Change, differences
from apps.memory_api.traces.quotes import cut, plain
from apps.memory_api.traces.steps import Run, Step

_FAR = 12
_MOST = 6


def find_retries(run: Run) -> tuple[Retry, ...]:
    """Per stretch of failures of one tool, the next call of it that worked on the same matter; at
    most six."""
    failing: dict[str, list[Step]] = {}
    found: list[Retry] = []
    for n, step in enumerate(run.steps):
        if len(found) == _MOST:
            break
        before = failing.get(step.tool)
        if step.failure:
            failing.setdefault(step.tool, []).append(step)
        elif step.verdict is False:
            continue
        elif before:
            if n - _place(run.steps, before[-1], n) <= _FAR and _same_matter(before[-1], step):
                found.append(_retry(run, before, step))
            del failing[step.tool]
    return tuple(found)


def _place(steps: list[Step], step: Step, upto: int) -> int:
    for n in range(upto - 1, max(-1, upto - _FAR - 2), -1):
        if steps[n] is step:
            return n
    return -_FAR


def _same_matter(failed: Step, worked: Step) -> bool:
    """Free text must share a word (or be an offered entry); named arguments must share a value."""
    old, new = failed.args, worked.args
    if "" in old and "" in new:
        listed = {plain(o) for o in offers(failed.response)}
        shared = set(plain(old[""]).split()) & set(plain(new[""]).split())
        return plain(new[""]) in listed or any(len(w) > 2 for w in shared)
    return any(new.get(name) == value for name, value in old.items())


def _retry(run: Run, failed: list[Step], worked: Step) -> Retry:
    last = failed[-1]
    changes = differences(last.args, worked.args)
    taken, via = _supplied(run, last, worked, changes)
    listed = {plain(o) for step in failed for o in offers(step.response)}
    return Retry(
        failed_event=last.event,
        event=worked.event,
        tool=worked.tool,
        failures=len(failed),
        message=cut(brief(last.failure), 120),
        kind=kind_of(last.failure)[0],
        before=last.call,
        after=worked.call,
        changes=changes[:6],
        taken=taken,
        via=via,
        between=tuple(
            dict.fromkeys(
                s.call for s in run.steps[:400] if last.at < s.at < worked.at and s.writes
            )
        )[-2:],
        took_offer=bool(listed) and plain(worked.args.get("", "")) in listed,
    )


def _supplied(
    run: Run, failed: Step, worked: Step, changes: tuple[Change, ...]
) -> tuple[str | None, str | None]:
    """The changed argument whose new value a response in between (or the latest one before) had
    named."""
    wanted = [(c.name, worked.args.get(c.name, "")) for c in changes if c.after]
    for step in reversed(run.steps[:200]):
        if not failed.at < step.at < worked.at or not step.response:
            continue
        for name, value in wanted:
            if len(value) >= 4 and value in step.response[:50_000]:
                return name, step.tool
    return None, None
