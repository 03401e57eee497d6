"""A crash after step 3 with both guarantees, duplicates in the source, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from headrace.brokers import open_log
from headrace.examples.checking import Fate, InProcessRun, fates_of, on_driver
from headrace.examples.exactly_once.app import app, bookings
from headrace.examples.exactly_once.feed import TOPICS, feed, payment
from headrace.examples.feeding import Encoding
from headrace.runtime.checkpoint.batch_log import MemoryBatchLog
from headrace.runtime.in_process import QUERY_ID, InProcessQuery

GOOD = payment("ann", 1, 250)


def test_a_duplicate_in_the_source_counts_twice_whatever_the_guarantee() -> None:
    with on_driver(app) as run:
        run.write([GOOD, GOOD])

        assert [each.value.payment_id for each in run.read("booked-payments")] == ["P-1", "P-1"]
        assert [each.value for each in run.read("revenue-by-account")] == [250, 500]


def test_a_store_of_ids_removes_a_duplicate_of_the_source() -> None:
    with on_driver(bookings(drops_duplicates=True)) as run:
        run.write([GOOD, GOOD, payment("ann", 2, 100)])

        assert [each.value.payment_id for each in run.read("booked-payments")] == ["P-1", "P-2"]
        assert [each.value for each in run.read("revenue-by-account")] == [250, 350]
        [letter] = run.read("payments-dead")
        assert letter.headers.last("__streams.errors.message") == b"Payment P-1 is a duplicate."
        assert run.dropped() == {"processing": 1}


def test_a_payment_from_the_future_does_not_make_the_store_forget_ids() -> None:
    with on_driver(bookings(drops_duplicates=True), initial_wall_clock_time=GOOD.timestamp) as run:
        run.write([GOOD, payment("ann", 2, 100)._replace(timestamp=10**13), GOOD])

        assert [each.value.payment_id for each in run.read("booked-payments")] == ["P-1"]
        assert [
            letter.headers.last("__streams.errors.message") for letter in run.read("payments-dead")
        ] == [b"The record is from more than a day ahead.", b"Payment P-1 is a duplicate."]


def test_bad_input_is_counted_and_kept() -> None:
    fates = {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.DEAD_LETTER,
    }

    assert fates_of(app, GOOD) == fates
    careful = fates_of(
        bookings(drops_duplicates=True),
        GOOD,
        again=payment("ann", 2, 100),
        late=payment("ann", 3, 100)._replace(timestamp=0),
        future=payment("ann", 4, 100)._replace(timestamp=10**13),
    )
    assert careful == {**fates, "duplicate": Fate.DEAD_LETTER}


@pytest.mark.parametrize(("guarantee", "booked"), [("at_least_once", 42), ("exactly_once_v2", 21)])
def test_end_to_end_a_crash_after_step_3_books_twice_only_without_transactions(
    tmp_path: Path, guarantee: Literal["at_least_once", "exactly_once_v2"], booked: int
) -> None:
    program = bookings(guarantee)
    config = program.config.with_settings(state_dir=tmp_path)
    log = open_log(config)
    for topic in ("payments", "booked-payments", "revenue-by-account"):
        log.create_topic(topic, partitions=2)
    log.append(map(Encoding(program, TOPICS).raw, feed()))
    log.close()
    batches = MemoryBatchLog(QUERY_ID)

    first = InProcessQuery(program.topology, config, batch_log=batches)
    end = first.planner.next(first.position)
    batches.plan(0, end)
    first.replay(first.position, end)  # steps 1 to 3: read, process, write
    first.log.close()  # step 4, the commit of the batch, does not come

    second = InProcessQuery(program.topology, config, batch_log=batches)
    second.replay(second.position, end)  # a restart repeats the batch that was planned
    run = InProcessRun(second, Encoding(program, TOPICS), program)
    found = [each.value.payment_id for each in run.read("booked-payments")]
    second.log.close()
    assert len(found) == booked
    assert len(set(found)) == 21
