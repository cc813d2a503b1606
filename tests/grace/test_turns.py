"""Few agent runs of a worker begin at once; one that waits lets the next one begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from memory_api.grace.turns import Turns


class Runs:
    """Runs that ask for a turn in the order of their numbers, and go on when a test says so."""

    def __init__(self, count: int, turns: Turns) -> None:
        self.begun: list[int] = []
        self.ends: dict[int, Callable[[], None]] = {}
        self.events = [asyncio.Event() for _ in range(count)]
        self.tasks = [asyncio.create_task(self._run(number, turns)) for number in range(count)]

    async def _run(self, number: int, turns: Turns) -> None:
        async with turns.take() as end:
            self.begun.append(number)
            self.ends[number] = end
            await self.events[number].wait()

    async def go(self, *numbers: int) -> None:
        for number in numbers:
            self.events[number].set()
        await asyncio.sleep(0.01)

    async def all(self) -> None:
        await self.go(*range(len(self.events)))
        await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), 5)


async def test_the_next_run_begins_when_one_has_ended() -> None:
    runs = Runs(5, Turns(2, 60))
    await runs.go()
    assert runs.begun == [0, 1]
    await runs.go(1)
    assert runs.begun == [0, 1, 2]
    await runs.go(0, 2)
    assert runs.begun == [0, 1, 2, 3, 4]
    await runs.all()


async def test_a_run_that_waits_ends_its_turn_once() -> None:
    runs = Runs(4, Turns(1, 60))
    await runs.go()
    runs.ends[0]()
    runs.ends[0]()
    await runs.go()
    assert runs.begun == [0, 1], "the second call gives nothing back"
    await runs.go(0)
    assert runs.begun == [0, 1], "nor does its end"
    await runs.all()
    assert runs.begun == [0, 1, 2, 3]


async def test_a_long_run_lets_others_begin() -> None:
    turns = Turns(1, 0.02)
    runs = Runs(2, turns)
    await runs.go()
    assert runs.begun == [0]
    await asyncio.sleep(0.1)
    assert runs.begun == [0, 1]
    await runs.all()
    again = Runs(1, turns)
    await again.all()
    assert again.begun == [0]


async def test_a_cancelled_run_takes_no_turn() -> None:
    turns = Turns(1, 60)
    runs = Runs(4, turns)
    await runs.go()
    runs.tasks[1].cancel()
    await runs.go(0)
    assert runs.begun == [0, 2]
    runs.events[2].set()
    runs.ends[2]()
    runs.tasks[3].cancel()  # the turn is given to it at this moment
    await runs.go()
    later = Runs(1, turns)
    await later.go()
    assert later.begun == [0]
    await asyncio.gather(runs.all(), later.all())
