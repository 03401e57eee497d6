"""The clock of batches: one time of day per batch, also when the system clock jumps."""

from __future__ import annotations

import pytest

from headrace.runtime.batches import BatchBoundary
from headrace.runtime.planning.batch_clock import BatchClock
from headrace.runtime.run_files import Control
from tests.unit.runtime.planning import FakeTime


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr("headrace.runtime.planning.batch_clock.time", fake)
    return fake


DAYS_30_MS = 30 * 24 * 3_600_000


def after_batch_at(clock: int) -> BatchBoundary:
    return BatchBoundary({}, clock)


def test_a_batch_has_the_time_of_day_in_milliseconds(fake_time: FakeTime) -> None:
    clock = BatchClock()

    first = clock.read(after_batch_at(0), Control())
    fake_time.advance(0.5)
    second = clock.read(after_batch_at(first), Control())

    assert (first, second) == (1_000_060_000, 1_000_060_500)


def test_a_controlled_clock_replaces_the_time_of_day(fake_time: FakeTime) -> None:
    assert BatchClock().read(after_batch_at(0), Control(clock=1_000)) == 1_000
    assert BatchClock().read(after_batch_at(0), Control(clock=0)) == 0


@pytest.mark.parametrize("control", [Control(clock=500), Control()])
def test_the_clock_never_goes_back_within_one_process(
    fake_time: FakeTime, control: Control
) -> None:
    clock = BatchClock()
    first = clock.read(after_batch_at(0), Control())

    fake_time.now -= 3_600

    assert clock.read(after_batch_at(first), control) == first


def test_a_start_takes_the_system_clock_also_if_the_last_batch_is_later(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    later = 1_000_060_000 + DAYS_30_MS
    clock = BatchClock()

    assert clock.read(after_batch_at(later), Control()) == 1_000_060_000
    fake_time.advance(1)
    assert clock.read(after_batch_at(later), Control()) == 1_000_061_000
    assert caplog.messages == [
        "The system clock is 2592000 s behind the last batch. Wall-clock schedules keep their due "
        "times."
    ]


def test_a_clock_that_jumps_ahead_for_three_seconds_moves_no_batch(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    clock = BatchClock()
    last = clock.read(after_batch_at(0), Control())
    times = []
    for jump in (0, DAYS_30_MS, DAYS_30_MS, DAYS_30_MS, 0):
        fake_time.now += jump / 1000
        fake_time.advance(1)
        last = clock.read(after_batch_at(last), Control())
        fake_time.now -= jump / 1000
        times.append(last - 1_000_060_000)

    assert times == [1_000, 2_000, 3_000, 4_000, 5_000]
    assert caplog.messages == [
        "The system clock is ahead by 2592000 s. Batches follow it if it holds for 60 s."
    ]


def test_batches_follow_a_jump_that_holds_for_a_minute(fake_time: FakeTime) -> None:
    clock = BatchClock()
    clock.read(after_batch_at(0), Control())
    fake_time.now += DAYS_30_MS / 1000
    times = []
    for _ in range(4):
        fake_time.advance(20.5)
        times.append(clock.read(after_batch_at(0), Control()) - 1_000_060_000)

    assert times == [20_500, 41_000, 61_500, DAYS_30_MS + 82_000]


def test_a_second_jump_must_hold_by_itself(fake_time: FakeTime) -> None:
    clock = BatchClock()
    clock.read(after_batch_at(0), Control())
    times = []
    for jump in (3_600, 0, DAYS_30_MS / 1000, 0):
        fake_time.now += jump
        fake_time.advance(59)
        times.append(clock.read(after_batch_at(0), Control()) - 1_000_060_000)

    assert times == [59_000, 118_000, 177_000, 236_000]


@pytest.mark.parametrize(("jump_seconds", "sum_ms"), [(59.0, 59_000), (1.0, 60_000)])
def test_small_jumps_add_up_to_at_most_a_minute(
    fake_time: FakeTime, jump_seconds: float, sum_ms: int
) -> None:
    clock = BatchClock()
    first = last = clock.read(after_batch_at(0), Control())
    for _ in range(600):
        fake_time.advance(1)
        fake_time.now += jump_seconds
        previous, last = last, clock.read(after_batch_at(last), Control())
        assert last > previous

    assert last - first == 600_000 + sum_ms


@pytest.mark.parametrize("jump", [59, -59])
def test_a_small_correction_is_taken_at_once(fake_time: FakeTime, jump: int) -> None:
    clock = BatchClock()
    first = clock.read(after_batch_at(0), Control())
    fake_time.now += jump

    assert clock.read(after_batch_at(first), Control()) == max(first, first + jump * 1000)


def test_the_real_clock_is_taken_at_once_after_a_controlled_one(fake_time: FakeTime) -> None:
    clock = BatchClock()
    clock.read(after_batch_at(0), Control())
    clock.read(after_batch_at(0), Control(clock=1_000_070_000))
    fake_time.advance(3_600)

    assert clock.read(after_batch_at(0), Control()) == 1_003_660_000


def test_a_stopped_clock_gives_each_batch_the_time_of_the_last_one() -> None:
    clock = BatchClock()
    last = clock.read(after_batch_at(0), Control(clock=1_000))

    clock.stop()

    assert clock.read(after_batch_at(last), Control(clock=5_000)) == 1_000
    assert clock.read(after_batch_at(last), Control()) == 1_000
