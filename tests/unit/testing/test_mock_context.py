"""MockProcessorContext: one processor alone."""

from __future__ import annotations

import pytest

from headrace import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordMetadata,
    Stores,
    TopologyError,
    UnknownStoreError,
)
from headrace.testing import CapturedForward, MockProcessorContext

COUNTS = Stores.key_value("counts", str, int, caching=True)


class Counter(Processor[str, int, str, int]):
    """Counts per key, and sends the counts when asked to."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.counts: KeyValueStore[str, int] = context.get_state_store(COUNTS)
        context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self.send, start_time=5)

    def process(self, record: Record[str, int]) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)
        self.context.commit()

    def send(self, timestamp: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(Record(key, count, timestamp), "child")


def test_a_processor_is_tested_alone() -> None:
    context = MockProcessorContext(stores=(COUNTS,))
    processor = Counter()
    processor.init(context)

    processor.process(Record("a", 1, 0))
    [scheduled] = context.scheduled_punctuators
    scheduled.punctuator(9)

    assert context.committed
    assert context.forwarded == [CapturedForward(Record("a", 1, 9), "child")]
    assert (scheduled.interval_ms, scheduled.type) == (1000, PunctuationType.WALL_CLOCK_TIME)
    assert (scheduled.start_time, scheduled.cancelled) == (5, False)


def test_captured_records_can_be_forgotten() -> None:
    context = MockProcessorContext()
    context.forward(Record("a", 1, 0))
    context.commit()

    context.reset_forwards()
    context.reset_commit()

    assert (context.forwarded, context.committed) == ([], False)


def test_a_context_returns_the_values_it_was_given() -> None:
    context = MockProcessorContext(
        application_id="app", task_id="1_2", app_configs={"application.id": "app"}
    )
    context.set_record_metadata("topic", 3, 4)
    context.set_current_stream_time_ms(5)
    context.set_current_system_time_ms(6)

    assert (context.application_id, context.task_id) == ("app", "1_2")
    assert context.record_metadata == RecordMetadata("topic", 3, 4)
    assert (context.current_stream_time_ms(), context.current_system_time_ms()) == (5, 6)
    assert context.app_configs() == {"application.id": "app"}


def test_a_new_context_knows_nothing_yet() -> None:
    context = MockProcessorContext()

    assert context.record_metadata is None
    assert (context.current_stream_time_ms(), context.current_system_time_ms()) == (-1, 0)
    assert context.app_configs() == {}


def test_a_store_that_was_not_given_is_an_error() -> None:
    context = MockProcessorContext()

    with pytest.raises(UnknownStoreError, match="asked for store 'counts'"):
        context.get_state_store(COUNTS)

    context.add_state_store(COUNTS)
    assert context.get_state_store("counts").get("a") is None


def test_a_schedule_can_be_cancelled() -> None:
    context = MockProcessorContext()

    context.schedule(5, PunctuationType.STREAM_TIME, print).cancel()

    assert context.scheduled_punctuators[0].cancelled
    assert context.scheduled_punctuators[0].start_time is None


def test_a_schedule_that_a_task_would_refuse_is_refused() -> None:
    with pytest.raises(TopologyError, match="scheduled every 0 ms"):
        MockProcessorContext().schedule(0, PunctuationType.STREAM_TIME, print)


def test_a_record_that_a_store_refuses_is_captured() -> None:
    context = MockProcessorContext()

    context.drop("store", "expired")

    assert context.dropped == [("store", "expired")]
