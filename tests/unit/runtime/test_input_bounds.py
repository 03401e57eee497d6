"""The bounds of input partitions: where a batch may begin, and where it must end."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CheckpointError, OffsetOutOfRangeError, StreamsBuilder, StreamsConfig
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.planning.input_bounds import InputBounds
from headrace.runtime.planning.input_topics import InputTopics
from tests.unit.runtime.planning import (
    Build,
    FakeTime,
    OffsetLog,
    by_pattern,
    copying,
    execution_plan,
    name,
    with_global_table,
)

IN_0, IN_1 = name("in"), name("in", 1)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr("headrace.runtime.planning.input_bounds.time", fake)
    return fake


def bounds_of(build: Build, log: OffsetLog, **settings: Any) -> InputBounds:
    """Return the bounds of a program's inputs, refreshed once."""
    plan, config = execution_plan(build), StreamsConfig(application_id="app", **settings)
    bounds = InputBounds(plan, config, log.as_log, InputTopics(plan, log.as_log))
    bounds.refresh()
    return bounds


def after(offsets: dict[str, list[int]], **fields: Any) -> BatchBoundary:
    """Return the end of a batch that has read up to these offsets."""
    return BatchBoundary(offsets, 1_000, **fields)


def available(bounds: InputBounds, offsets: dict[str, list[int]], **fields: Any) -> dict[str, int]:
    """Return how many records a batch may read after these offsets, by partition."""
    start = after(offsets, **fields)
    begins = {partition: start.offset(*partition) for partition in bounds.ends}
    counts = bounds.available(start, begins)
    return {f"{topic}-{partition}": count for (topic, partition), count in counts.items()}


def test_a_refresh_returns_the_end_offsets_now() -> None:
    log = OffsetLog({"in": [3, 2]})
    bounds = bounds_of(copying, log)
    before = bounds.ends

    log.ends["in"] = [5, 2]

    assert bounds.refresh() == {IN_0: 5, IN_1: 2}
    assert bounds.ends == {IN_0: 5, IN_1: 2}
    assert before == {IN_0: 3, IN_1: 2}


def test_a_refresh_finds_new_topics_and_partitions_after_five_seconds(fake_time: FakeTime) -> None:
    log = OffsetLog({"log-a": [3]})
    bounds = bounds_of(by_pattern, log)
    log.ends |= {"log-a": [3, 4], "log-b": [9]}

    fake_time.advance(5.0)
    early = bounds.refresh()
    fake_time.advance(0.1)
    late = bounds.refresh()
    log.ends["log-c"] = [1]

    assert early == {name("log-a"): 3}
    assert late == {name("log-a"): 3, name("log-a", 1): 4, name("log-b"): 9}
    assert bounds.refresh() == late, "the next lookup is 5 s after the last"


def test_log_start_offsets_are_checked_once_after_each_lookup_of_topics(
    fake_time: FakeTime,
) -> None:
    log = OffsetLog({"in": [9]})
    bounds = bounds_of(copying, log, fail_on_data_loss=False)
    start = after({"in": [2]})
    is_first = bounds.must_check_starts
    bounds.start_overrides(start)
    log.log_starts[IN_0] = 5

    assert is_first
    assert not bounds.must_check_starts
    assert bounds.start_overrides(start) == {}
    fake_time.advance(5.1)
    bounds.refresh()
    assert bounds.must_check_starts
    assert bounds.start_overrides(start) == {"in": {"0": 5}}


def test_a_batch_begins_where_the_last_one_ended() -> None:
    log = OffsetLog({"in": [9, 9]})
    log.log_starts |= {IN_0: 2, IN_1: 1}

    assert bounds_of(copying, log).start_overrides(after({"in": [2, 3]})) == {}


def test_lost_records_raise_an_error_with_their_range() -> None:
    log = OffsetLog({"in": [9]})
    log.log_starts[IN_0] = 5
    bounds = bounds_of(copying, log)

    with pytest.raises(OffsetOutOfRangeError) as caught:
        bounds.start_overrides(after({"in": [2]}))

    assert (caught.value.offset, caught.value.beginning) == (2, 5)
    assert "Offset 2 of 'in', partition 0, is gone" in str(caught.value)
    assert "3 offsets were lost" in str(caught.value)


def test_lost_records_are_skipped_if_the_settings_allow_that() -> None:
    log = OffsetLog({"in": [9, 9]})
    log.log_starts[IN_1] = 5
    bounds = bounds_of(copying, log, fail_on_data_loss=False)

    assert bounds.start_overrides(after({"in": [2, 2]})) == {"in": {"1": 5}}


def test_a_new_partition_begins_at_its_log_start_offset_and_has_lost_nothing() -> None:
    log = OffsetLog({"log-a": [3, 3], "log-b": [8], "log-c": [1]})
    log.log_starts |= {name("log-a", 1): 2, name("log-b"): 6}
    bounds = bounds_of(by_pattern, log)

    assert bounds.start_overrides(after({"log-a": [3]})) == {"log-a": {"1": 2}, "log-b": {"0": 6}}


def test_start_overrides_hold_until_a_batch_has_begun_there(fake_time: FakeTime) -> None:
    log = OffsetLog({"in": [5]})
    log.log_starts[IN_0] = 5
    bounds = bounds_of(copying, log, fail_on_data_loss=False)
    start, overrides = after({"in": [2]}), {"in": {"0": 5}}

    assert [bounds.start_overrides(start) for _ in range(3)] == [overrides] * 3
    fake_time.advance(5.1)
    bounds.refresh()
    assert [bounds.start_overrides(start) for _ in range(3)] == [overrides] * 3
    assert bounds.start_overrides(after({"in": [6]}, start_overrides=overrides)) == {}


def test_all_records_up_to_the_end_offsets_are_available() -> None:
    bounds = bounds_of(copying, OffsetLog({"in": [5, 3, 2]}))

    assert available(bounds, {"in": [1, 3]}) == {"in-0": 4, "in-1": 0, "in-2": 2}


def test_a_query_stops_at_the_end_offsets_of_its_start() -> None:
    log = OffsetLog({"in": [5, 3]})
    bounds = bounds_of(copying, log)
    before = bounds.has_stop_offsets

    bounds.stop_at_current_ends()
    log.ends["in"] = [9, 3]
    bounds.refresh()

    assert (before, bounds.has_stop_offsets) == (False, True)
    assert [bounds.stop_offset(partition) for partition in (IN_0, IN_1)] == [5, 3]
    assert available(bounds, {"in": [1, 0]}) == {"in-0": 4, "in-1": 3}


def test_partitions_that_are_created_after_the_start_have_nothing_available(
    fake_time: FakeTime,
) -> None:
    log = OffsetLog({"log-a": [1]})
    bounds = bounds_of(by_pattern, log)
    bounds.stop_at_current_ends()

    log.ends |= {"log-a": [1, 4], "log-b": [2]}
    fake_time.advance(5.1)
    bounds.refresh()

    assert available(bounds, {"log-a": [0]}) == {"log-a-0": 1, "log-a-1": 0, "log-b-0": 0}


def test_topics_that_the_application_writes_are_read_beyond_the_stop_offsets() -> None:
    def build(builder: StreamsBuilder) -> None:
        copying(builder)
        builder.stream("out", key=str, value=int).to("copies")

    log = OffsetLog({"in": [3], "out": [0]})
    bounds = bounds_of(build, log)
    bounds.stop_at_current_ends()

    log.ends = {"in": [4], "out": [3]}
    bounds.refresh()

    assert bounds.stop_offset(name("out")) == 3
    assert available(bounds, {"in": [3], "out": [0]}) == {"in-0": 0, "out-0": 3}


def test_a_partition_that_ends_before_its_stop_offset_is_read_up_to_its_end() -> None:
    log = OffsetLog({"in": [5]})
    bounds = bounds_of(copying, log)
    bounds.stop_at_current_ends()

    log.ends["in"] = [4]
    bounds.refresh()

    assert bounds.stop_offset(IN_0) == 4


def test_nothing_but_global_tables_is_available_until_they_are_loaded() -> None:
    bounds = bounds_of(with_global_table, OffsetLog({"in": [2], "rates": [4, 1, 7]}))
    load_ends = {"global_load_ends": {"rates": [3, 1]}}

    first = available(bounds, {"in": [0], "rates": [0, 0, 0]}, **load_ends)
    rest = available(bounds, {"in": [0], "rates": [2, 1, 0]}, **load_ends)
    loaded = available(bounds, {"in": [0], "rates": [3, 1, 0]}, **load_ends)

    assert first == {"rates-0": 3, "rates-1": 1}
    assert rest == {"rates-0": 1}
    assert loaded == {"in-0": 2, "rates-0": 1, "rates-1": 0, "rates-2": 7}


def test_a_global_table_that_has_lost_its_records_does_not_keep_others_waiting() -> None:
    bounds = bounds_of(with_global_table, OffsetLog({"in": [2], "rates": [1]}))

    assert available(bounds, {"in": [0], "rates": [1]}, global_load_ends={"rates": [3]}) == {
        "in-0": 2,
        "rates-0": 0,
    }


def test_a_partition_may_end_before_its_read_offset_for_ten_seconds(fake_time: FakeTime) -> None:
    bounds = bounds_of(copying, OffsetLog({"in": [0, 4]}))

    first = available(bounds, {"in": [3, 3]})
    fake_time.advance(10.0)

    assert first == {"in-0": 0, "in-1": 1}
    assert available(bounds, {"in": [3, 3]}) == first


def test_a_topic_that_was_recreated_raises_an_error_after_ten_seconds(fake_time: FakeTime) -> None:
    bounds = bounds_of(copying, OffsetLog({"in": [4, 1]}))
    available(bounds, {"in": [3, 3]})
    fake_time.advance(10.1)

    with pytest.raises(CheckpointError) as caught:
        available(bounds, {"in": [3, 3]})

    assert str(caught.value) == (
        "Topic 'in', partition 1, ends at 1, but was read up to 3: it was deleted and recreated. "
        "Start again with `headrace reset app`."
    )


def test_the_ten_seconds_begin_again_after_the_end_offset_was_right(fake_time: FakeTime) -> None:
    log = OffsetLog({"in": [1]})
    bounds = bounds_of(copying, log)
    for end in (1, 3, 1):
        log.ends["in"] = [end]
        bounds.refresh()
        available(bounds, {"in": [3]})
        fake_time.advance(9.0)

    assert available(bounds, {"in": [3]}) == {"in-0": 0}
    fake_time.advance(1.1)
    with pytest.raises(CheckpointError):
        available(bounds, {"in": [3]})
