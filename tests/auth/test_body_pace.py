"""Large bodies of one tenant are read at its rate, and delay no other tenant."""

from __future__ import annotations

from uuid import UUID

from memory_api.auth.body_pace import BURST_BYTES, MAX_TENANTS, BodyPace

ONE, OTHER = UUID(int=1), UUID(int=2)
RATE = 1_000_000


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


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
