"""Work that takes several requests, as generators that do no I/O: they yield a `Request` and are
sent its answer, yield a `Pause`, or yield a `Give` for whoever iterates. Both clients drive them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hansei import routes
from hansei.answers import Page, Reflect, Run, Sent
from hansei.errors import TimedOut
from hansei.exchange import LONGEST_PAUSE, Pause
from hansei.lines import Line, Source, batches, read_lines
from hansei.request import API, Id, Request, following, write

T = TypeVar("T")

SETTLED = ("done", "failed", "dead")
UNSETTLED = ("queued", "running", "waiting")
FIRST_LOOK, LONGEST_WAIT = 0.1, 2.0
"""Seconds between two looks at one run: each is half as long again as the one before."""
LOOK_EVERY, SHARE_OF_LOOKING = 0.4, 0.1
"""Many runs are looked at at most this often (seconds), and looking takes at most this share of the
time, because the service has better things to do.
"""
RESENDS, RESEND_AFTER = 12, 5.0
"""How often lines are sent again that were refused for now, and seconds in between."""
FOR_NOW = ("queue_full", "unavailable")
STEPS = 4
"""Runs that learning from one trace can take."""
MORE_PAGES = 3
"""How far behind the runs asked for the list is read, for work of others in between."""


@dataclass(frozen=True)
class Give(Generic[T]):
    """One item for the caller."""

    item: T


Flow = Generator[Request[Any] | Pause | Give[T], Any, None]


def every(first: Request[Page[T]]) -> Flow[T]:
    """All items of a list, page by page."""
    request: Request[Page[T]] | None = first
    while request is not None:
        page: Page[T] = yield request
        yield from map(Give, page["items"])
        request = following(first, page)


def send_traces(
    source: Source,
    *,
    reflect: Reflect = "auto",
    project_id: str | None = None,
    playbook: str | None = None,
) -> Flow[Sent]:
    """Store many traces: dicts, or the path of a JSON or JSONL file. Gives one answer a trace, in
    order, as they are stored; a trace that is refused has an `error` and stops nothing.

    The file is read and sent a hundred traces at a time, so it may be of any size. Traces that the
    service has no room for now are sent again for about a minute. `project_id` and `playbook` win
    over what the traces say.
    """
    overrides = {"project_id": project_id, "playbook": playbook}
    for batch in batches(read_lines(source, overrides)):
        fit = [line for line in batch if line.refusal is None]
        answers = yield from _stored(fit, reflect)
        for line in batch:
            if line.refusal is not None:
                yield Give[Sent]({"line": line.number, "error": line.refusal})
            else:
                yield Give[Sent](answers[line.number] | {"line": line.number})


def _stored(
    lines: Sequence[Line], reflect: Reflect
) -> Generator[Request[Any] | Pause | Give[Any], Any, dict[int, Sent]]:
    """Send lines, and those again that are refused for now. Answers by their numbers."""
    answers: dict[int, Sent] = {}
    left: Sequence[Line] = lines
    for again in range(RESENDS + 1):
        if not left:
            break
        if again:
            yield Pause(_pause([answers[line.number] for line in left]))
        items: list[Sent] = (yield _ndjson(left, reflect))["items"]
        for line, item in zip(left, items, strict=True):
            answers[line.number] = item
        left = _put_off(left, answers)
    return answers


def _put_off(lines: Sequence[Line], answers: Mapping[int, Sent]) -> list[Line]:
    return [line for line in lines if _code(answers[line.number]) in FOR_NOW]


def _code(sent: Sent) -> str | None:
    return sent.get("error", {}).get("code")


def _pause(refused: Iterable[Sent]) -> float:
    """The longest that one of them was asked to wait."""
    asked = [float(one.get("error", {}).get("retry_after", RESEND_AFTER)) for one in refused]
    return min(max(asked), LONGEST_PAUSE)


def _ndjson(lines: Iterable[Line], reflect: Reflect) -> Request[Any]:
    sent: Request[Any] = write("POST", f"{API}/traces", params={"reflect": reflect})
    body = b"\n".join(line.text for line in lines)
    headers = sent.headers | {"Content-Type": "application/x-ndjson"}
    return Request(sent.method, sent.path, sent.params, body, headers)


def wait(run_id: Id, *, timeout: float | None = None) -> Flow[Run]:
    """Give a run once it is done, failed or dead. Raises `TimedOut` after `timeout` seconds."""
    yield Give((yield from _settled(run_id, timeout)))


def steps(run_id: Id, *, timeout: float | None = None) -> Flow[Run]:
    """Give a run and each step that follows it (evaluate, reflect, curate, merge), as they are
    settled. Raises `TimedOut` when one of them takes longer than `timeout` seconds.
    """
    left: Id | None = run_id
    while left is not None:
        run = yield from _settled(left, timeout)
        yield Give(run)
        left = run["next_run_id"]


def _settled(
    run_id: Id, timeout: float | None = None
) -> Generator[Request[Any] | Pause | Give[Any], Any, Run]:
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_LOOK
    while True:
        run: Run = yield routes.run(run_id)
        if run["state"] in SETTLED:
            return run
        if deadline is not None and time.monotonic() + pause > deadline:
            raise TimedOut(f"Run {run_id} is still {run['state']} after {timeout:g} s.")
        yield Pause(pause)
        pause = min(pause * 1.5, LONGEST_WAIT)


def unsettled(run_ids: Collection[str], *, project_id: str | None = None) -> Flow[set[str]]:
    """Give which of many runs are not settled yet, or are followed by steps that are not, after
    each look, until none is left.

    It reads the list of unsettled work and asks for no run by itself; `project_id` keeps that list
    short.
    """
    left = set(run_ids)
    while left:
        started = time.monotonic()
        first = routes.runs(state=UNSETTLED, project_id=project_id)
        request: Request[Page[Run]] | None = first
        seen: set[str] = set()
        while request is not None:
            page: Page[Run] = yield request
            seen.update(run["parent_id"] or run["id"] for run in page["items"])
            request = following(first, page)
        left &= seen
        yield Give(set(left))
        if left:
            looking = time.monotonic() - started
            yield Pause(max(LOOK_EVERY, looking * (1 / SHARE_OF_LOOKING - 1)))


def outcomes(run_ids: Collection[str], *, project_id: str | None = None) -> Flow[Run]:
    """Give many settled runs and the steps that followed them, in no order. Recent ones come from
    the list of all work, the others one by one; one that is not settled yet is waited for.
    """
    wanted, given = set(run_ids), set[str]()
    missing = set(wanted)
    pages = STEPS * len(wanted) // routes.PAGE + MORE_PAGES
    first = routes.runs(state=SETTLED, project_id=project_id)
    request: Request[Page[Run]] | None = first
    while wanted - given and request is not None and pages > 0:
        page: Page[Run] = yield request
        for run in page["items"]:
            if run["id"] not in given and {run["id"], run["parent_id"]} & wanted:
                given.add(run["id"])
                missing |= {run["next_run_id"]} if run["next_run_id"] else set()
                yield Give(run)
        request = following(first, page)
        pages -= 1
    while missing := missing - given:
        run = yield from _settled(missing.pop())
        given.add(run["id"])
        missing |= {run["next_run_id"]} if run["next_run_id"] else set()
        yield Give(run)
