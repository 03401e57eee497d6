"""The clock of batches: one time of day per batch, which never goes back."""

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


@pytest.mark.parametrize("clock", [500, None])
def test_the_clock_never_goes_back(fake_time: FakeTime, clock: int | None) -> None:
    later = 2_000_000_000_000

    assert BatchClock().read(after_batch_at(later), Control(clock=clock)) == later


def test_a_stopped_clock_gives_each_batch_the_time_of_the_last_one() -> None:
    clock = BatchClock()
    last = clock.read(after_batch_at(0), Control(clock=1_000))

    clock.stop()

    assert clock.read(after_batch_at(last), Control(clock=5_000)) == 1_000
    assert clock.read(after_batch_at(last), Control()) == 1_000
