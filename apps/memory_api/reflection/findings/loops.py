"""The same call made again, and stretches of failing calls that only reword each other."""

from __future__ import annotations

import re

from apps.memory_api.reflection.findings.errors import brief, offers
from apps.memory_api.reflection.findings.schemas import Repeat, Streak
from apps.memory_api.traces.quotes import cut, plain
from apps.memory_api.traces.steps import Run, Step

_CHEAP = re.compile(r"^(?:think|note|plan|ls|pwd)$", re.IGNORECASE)
_FILLER = {"of", "in", "on", "and", "for", "to", "by", "with", "or", "at", "from", "is"}


def find_repeats(run: Run) -> tuple[Repeat, ...]:
    """Identical calls, most repeated first, at most five. A read repeated after a change is no
    repeat."""
    groups: dict[tuple[str, str, int], list[Step]] = {}
    epoch = 0
    for step in run.steps:
        if step.args and not _CHEAP.match(step.tool):
            groups.setdefault((*step.key, 0 if step.failure else epoch), []).append(step)
        if step.writes and not step.failure and step.verdict is None:
            epoch += 1
    found = [
        Repeat(
            event=steps[1].event,
            events=tuple(s.event for s in steps[:5]),
            tool=steps[0].tool,
            call=steps[0].call,
            count=len(steps),
            failing=sum(1 for s in steps if s.failure or s.verdict is False),
        )
        for steps in groups.values()
        if len(steps) >= 2
    ]
    return tuple(sorted(found, key=lambda r: (-r.failing, -r.count))[:5])


def find_streaks(run: Run) -> tuple[Streak, ...]:
    """Runs of three or more failing calls of a tool without one success of it between; longest
    first, at most three."""
    open_streaks: dict[str, list[Step]] = {}
    done: list[list[Step]] = []
    for step in run.steps:
        if step.failure:
            open_streaks.setdefault(step.tool, []).append(step)
        elif len(open_streaks.get(step.tool, ())) >= 3:
            done.append(open_streaks.pop(step.tool))
        else:
            open_streaks.pop(step.tool, None)
    done += [steps for steps in open_streaks.values() if len(steps) >= 3]
    taken = {plain(s.args.get("", "")) for s in run.steps}
    return tuple(_streak(s, taken) for s in sorted(done, key=len, reverse=True)[:3])


def _streak(steps: list[Step], taken: set[str]) -> Streak:
    named = any("" not in s.args for s in steps)
    values = [] if named else [s.call if "[" in s.args[""] else s.args[""] for s in steps]
    untried: list[str] = []
    for step in steps[:20]:
        untried += [
            o for o in offers(step.response)[:5] if plain(o) not in taken and o not in untried
        ]
    kept = _kept(values) if values else ""
    return Streak(
        event=steps[0].event,
        events=tuple(s.event for s in steps[:5]),
        tool=steps[0].tool,
        count=len(steps),
        kept=kept,
        tried=tuple(dict.fromkeys(cut(v, 60) for v in values[:6])),
        untried=tuple(_closest(untried, " ".join(values[:6])))[:3],
        unquoted=_unquoted(steps),
        messages=tuple(dict.fromkeys(cut(brief(s.failure), 90) for s in steps))[:3],
    )


def _kept(values: list[str]) -> str:
    """The words every argument has, in the order of the first."""
    shared = set(plain(values[0]).split())
    for value in values[1:]:
        shared &= set(plain(value).split())
    words = [w for w in re.findall(r"[\w'&.\-]+", values[0][:400]) if plain(w) in shared]
    while words and words[0].casefold() in _FILLER:
        words = words[1:]
    while words and words[-1].casefold() in _FILLER:
        words.pop()
    return cut(" ".join(words), 80)


def _closest(offered: list[str], tried: str) -> list[str]:
    """Offered entries that share most words with what was tried, first; those that share none are
    left out."""
    wanted = set(plain(tried).split()) - _FILLER
    scored = [
        (len(wanted & set(plain(o).split())) / (1 + len(plain(o).split())), o) for o in offered
    ]
    return [o for score, o in sorted(scored, key=lambda x: -x[0]) if score > 0.2]


def _unquoted(steps: list[Step]) -> str | None:
    for step in steps:
        value = step.args.get("", "").strip()
        if value[:1] in "\"'“‘「" and any(plain(o) == plain(value) for o in offers(step.response)):
            return cut(value, 80)
    return None
