"""Large bodies of one tenant are read at its rate, and its writes wait for each other while another
tenant uses the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from memory_api.auth.fairness import (
    BURST_BYTES,
    MAX_TENANTS,
    MAX_WAITING,
    SHARED_SECONDS,
    BodyPace,
    WriteSlots,
)
from memory_api.auth.rate_limits import RateLimited

ONE, OTHER = UUID(int=1), UUID(int=2)
RATE = 1_000_000


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


class Writes:
    """Starts writes that last until they are ended."""

    def __init__(self, slots: WriteSlots) -> None:
        self.slots = slots
        self.started: list[int] = []
        self.ends: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, tenant: UUID = ONE) -> None:
        number, end = len(self.ends), asyncio.Event()
        self.ends.append(end)

        async def write() -> None:
            async with self.slots.slot(tenant):
                self.started.append(number)
                await end.wait()

        self.tasks.append(asyncio.create_task(write()))
        await asyncio.sleep(0)

    async def end(self, number: int) -> None:
        self.ends[number].set()
        await asyncio.sleep(0.02)  # the pause is 0: the clock stands still


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slots(clock: Clock) -> WriteSlots:
    return WriteSlots(clock)


@pytest.fixture
async def writes(slots: WriteSlots) -> AsyncIterator[Writes]:
    writes = Writes(slots)
    yield writes
    for task in writes.tasks:
        task.cancel()
    await asyncio.gather(*writes.tasks, return_exceptions=True)
    await asyncio.sleep(0.05)
    assert not slots._writes  # pyright: ignore[reportPrivateUsage]


async def test_single_tenant_does_not_wait(slots: WriteSlots, writes: Writes) -> None:
    slots.note_request(ONE)
    for _ in range(5):
        await writes.start()
    assert writes.started == [0, 1, 2, 3, 4]


async def test_writes_start_in_order_while_another_tenant_is_active(
    slots: WriteSlots, writes: Writes
) -> None:
    slots.note_request(OTHER)
    slots.note_request(ONE)
    for _ in range(3):
        await writes.start()
    await writes.start(OTHER)
    assert writes.started == [0, 3]
    await writes.end(0)
    assert writes.started == [0, 3, 1]
    await writes.end(1)
    assert writes.started == [0, 3, 1, 2]


async def test_next_turn_starts_after_a_pause(
    slots: WriteSlots, writes: Writes, clock: Clock
) -> None:
    slots.note_request(OTHER)
    await writes.start()
    await writes.start()
    clock.now += 0.08  # the first write took this long
    await writes.end(0)
    assert writes.started == [0]
    await asyncio.sleep(0.1)
    assert writes.started == [0, 1]


async def test_no_turns_after_the_other_tenant_left(
    slots: WriteSlots, writes: Writes, clock: Clock
) -> None:
    slots.note_request(OTHER)
    slots.note_request(ONE)
    for _ in range(3):
        await writes.start()
    clock.now += SHARED_SECONDS
    slots.note_request(ONE)
    await writes.end(0)
    assert writes.started == [0, 1, 2]


async def test_too_many_writes_that_wait_are_refused(slots: WriteSlots, writes: Writes) -> None:
    slots.note_request(OTHER)
    for _ in range(1 + MAX_WAITING):
        await writes.start()
    with pytest.raises(RateLimited):
        async with slots.slot(ONE):
            pass
    await writes.start(OTHER)
    assert writes.started[-1] == MAX_WAITING + 1


async def test_cancelled_write_frees_its_slot(slots: WriteSlots, writes: Writes) -> None:
    slots.note_request(OTHER)
    for _ in range(4):
        await writes.start()
    writes.tasks[1].cancel()
    writes.ends[0].set()
    await asyncio.sleep(0.02)
    assert writes.started == [0, 2]
    writes.tasks[2].cancel()
    await asyncio.sleep(0.02)
    assert writes.started == [0, 2, 3]


def test_burst_then_rate() -> None:
    clock = Clock()
    pace = BodyPace(RATE, clock)
    assert round(pace.delay(ONE, BURST_BYTES), 6) <= 0
    assert round(pace.delay(ONE, RATE), 6) == 1
    assert round(pace.delay(ONE, 2 * RATE), 6) == 3
    clock.now += 3  # it waited as long as it was told
    assert round(pace.delay(ONE, RATE), 6) == 1


def test_other_tenant_does_not_wait() -> None:
    pace = BodyPace(RATE, Clock())
    pace.delay(ONE, 10 * BURST_BYTES)
    assert round(pace.delay(OTHER, BURST_BYTES), 6) <= 0


def test_burst_is_full_again_after_a_while() -> None:
    clock = Clock()
    pace = BodyPace(RATE, clock)
    pace.delay(ONE, 2 * BURST_BYTES)
    clock.now += 2 * BURST_BYTES / RATE
    assert round(pace.delay(ONE, BURST_BYTES), 6) <= 0


def test_tenants_without_debt_are_forgotten() -> None:
    clock = Clock()
    pace = BodyPace(RATE, clock)
    pace.delay(ONE, 10 * BURST_BYTES)
    for number in range(2, MAX_TENANTS + 1):
        pace.delay(UUID(int=number), 1)
    clock.now += 1
    pace.delay(UUID(int=MAX_TENANTS + 1), 1)
    assert len(pace._paid_until) == 2  # pyright: ignore[reportPrivateUsage]
    assert pace.delay(ONE, 1) > 0
