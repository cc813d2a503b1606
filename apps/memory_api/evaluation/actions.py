"""The run's changing calls against a list of expected actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apps.memory_api.traces.arguments import (
    Arguments,
    Change,
    as_items,
    as_mapping,
    differences,
    flat,
    shown,
)
from apps.memory_api.traces.steps import Run, Step

_MOST = 6
_CALLS = 300
_ARGUMENTS = ("kwargs", "arguments", "args")
Expected = tuple[str, Arguments]


@dataclass(frozen=True, slots=True)
class Departure:
    """Where the run left the expected actions. `kind`: changed (right tool, other arguments),
    extra, missing."""

    kind: str
    event: str | None
    tool: str
    call: str
    changes: tuple[Change, ...] = ()
    accepted: bool = True


def expected_actions(ground_truth: Any) -> list[Expected] | None:
    """`actions: [{name, kwargs|arguments|args}]` of a ground truth, or None when it has none."""
    given = as_mapping(ground_truth)
    if not isinstance(given.get("actions"), list):
        return None
    found: list[Expected] = []
    for item in as_items(given["actions"])[:200]:
        action = as_mapping(item)
        name = action.get("name")
        if isinstance(name, str):
            found.append((name, flat(next((action[k] for k in _ARGUMENTS if k in action), None))))
    return found


def find_departures(run: Run, ground_truth: Any, most: int = _MOST) -> tuple[Departure, ...]:
    """Changing calls that are not on the list or have other arguments, in order, then expected ones
    never made; at most `most`."""
    expected = expected_actions(ground_truth)
    if expected is None or not (run.steps or run.said):
        return ()
    wanted = changing(expected)
    names = {name for name, _ in wanted}
    made = [s for s in run.steps if s.writes or s.tool in names]
    done = [s for s in made if not s.failure][:_CALLS]
    left, spare = _match_exactly(wanted, done)
    found = [_departure(step, left) for step in spare]
    found += [Departure("missing", None, name, shown(name, "", args, 70)) for name, args in left]
    return tuple(found[:most])


def changing(expected: list[Expected]) -> list[Expected]:
    """Those of the expected calls that change something, by their tool's name."""
    return [e for e in expected if Step(0, "", e[0], "", {}).writes]


def _match_exactly(wanted: list[Expected], done: list[Step]) -> tuple[list[Expected], list[Step]]:
    left = list(wanted)
    spare: list[Step] = []
    for step in done:
        hit = next(
            (e for e in left if e[0] == step.tool and not differences(e[1], step.args)), None
        )
        if hit:
            left.remove(hit)
        else:
            spare.append(step)
    return left, spare


def _departure(step: Step, left: list[Expected]) -> Departure:
    """`changed` when an expected call of that tool is still open (the closest one is taken), else
    `extra`."""
    options = [e for e in left if e[0] == step.tool]
    if not options:
        return Departure("extra", step.event, step.tool, step.call)
    nearest = min(options, key=lambda e: len(differences(step.args, e[1])))
    changes = differences(step.args, nearest[1])
    if len(changes) > max(3, len(nearest[1])):
        return Departure("extra", step.event, step.tool, step.call)
    left.remove(nearest)
    return Departure("changed", step.event, step.tool, step.call, changes[:6])
