"""Input synchronization: inputs that are ahead wait, and buffered records are not processed yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from headrace.brokers.log import TopicPartition
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.planning.input_sync import InputSync
from headrace.runtime.planning.input_topics import InputTopics
from tests.unit.runtime.planning import (
    Build,
    OffsetLog,
    by_two_patterns_together,
    copying,
    execution_plan,
    joining,
    joining_behind_a_repartition,
    joining_behind_two_repartitions,
    layout_of,
    name,
    with_global_table,
)

FIRST, SECOND = "app-first-repartition", "app-second-repartition"


class Synced:
    """The input synchronization of one program, and the names of its tasks.

    Args:
        build: Builds the program.
        partitions: How many partitions each topic has.
    """

    def __init__(self, build: Build, partitions: Mapping[str, int]) -> None:
        self._plan = execution_plan(build)
        log = OffsetLog({topic: [0] * count for topic, count in partitions.items()})
        self.topics = InputTopics(self._plan, log.as_log)
        self.layout = layout_of(self._plan, partitions)
        self.sync = InputSync(self._plan, self.layout, self.topics)

    def task(self, topic: str, partition: int = 0) -> str:
        """Return the id of the task that reads a partition."""
        reader = self._plan.reader_of(topic)
        assert reader is not None
        return f"{reader.id}_{partition}"

    def buffered(self, topic: str, offsets: dict[str, int]) -> list[TaskReport]:
        """Return reports of all tasks that read a topic: the first offsets they have buffered."""
        reader = self._plan.reader_of(topic)
        assert reader is not None
        partitions = range(self.layout.count_of(reader.id))
        return [TaskReport(self.task(topic, p), waiting_from=offsets) for p in partitions]

    def processed(self, **offsets: list[int]) -> dict[str, list[int | None]]:
        """Return the processed offsets of partitions that are read up to ``offsets``."""
        by_topic: dict[str, list[int | None]] = {}
        read = {topic.replace("_", "-"): some for topic, some in offsets.items()}
        for partition, offset in self.sync.processed_offsets(BatchBoundary(read, 1)).items():
            by_topic.setdefault(partition.topic, []).append(offset)
            assert len(by_topic[partition.topic]) == partition.partition + 1
        return by_topic


def ahead(task: str, *topics: str, starved: Iterable[str] = ()) -> TaskReport:
    """Return the report of a task that has buffered many records of some inputs."""
    return TaskReport(task, ahead=list(topics), starved=list(starved))


def five_of(*partitions: TopicPartition) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, 5)


IN, TABLE = (name("in", 0), name("in", 1)), (name("table", 0), name("table", 1))
TWO_OF_EACH = {"in": 2, "table": 2}


def test_all_inputs_are_read_while_no_task_has_buffered_many_records() -> None:
    synced = Synced(joining, TWO_OF_EACH)
    available = five_of(*IN, *TABLE)

    before = synced.sync.limit_inputs_ahead(available)
    synced.sync.learn([TaskReport("0_0", waiting_from={"in": 3}), TaskReport("0_1")])

    assert before == synced.sync.limit_inputs_ahead(available) == available


def test_an_input_that_is_ahead_is_not_read_in_the_partition_of_that_task() -> None:
    synced = Synced(joining, TWO_OF_EACH)
    available = five_of(*IN, *TABLE)

    synced.sync.learn([ahead("0_1", "in")])
    limited = synced.sync.limit_inputs_ahead(available)

    assert limited == {**available, IN[1]: 0}
    assert available == five_of(*IN, *TABLE), "the argument stays as it is"


@pytest.mark.parametrize("others", [{TABLE[0]: 0, TABLE[1]: 5}, {TABLE[1]: 5}, {}])
def test_an_input_at_the_bound_is_not_read_while_a_task_waits_for_a_quiet_one(
    others: dict[TopicPartition, int],
) -> None:
    synced = Synced(joining, TWO_OF_EACH)

    synced.sync.learn([ahead("0_0", "in")])
    limited = synced.sync.limit_inputs_ahead(five_of(*IN) | others)

    assert limited == {IN[0]: 0, IN[1]: 5} | others


def test_an_input_that_a_task_waits_for_is_read() -> None:
    synced = Synced(joining, TWO_OF_EACH)

    synced.sync.learn([ahead("0_0", "in", starved=["table"]), ahead("0_1", "table")])
    limited = synced.sync.limit_inputs_ahead(five_of(*IN, *TABLE))

    assert limited == {**five_of(*IN, *TABLE), IN[0]: 0, TABLE[1]: 0}


def test_an_input_that_has_no_records_available_may_be_ahead() -> None:
    synced = Synced(joining, TWO_OF_EACH)

    synced.sync.learn([ahead("0_0", "in")])

    assert synced.sync.limit_inputs_ahead(five_of(TABLE[0])) == five_of(TABLE[0])


def test_only_the_reports_of_the_last_batch_limit_inputs() -> None:
    synced = Synced(joining, TWO_OF_EACH)
    available = five_of(*IN, *TABLE)

    synced.sync.learn([ahead("0_0", "in")])
    synced.sync.learn([TaskReport("0_1")])

    assert synced.sync.limit_inputs_ahead(available) == available


def test_a_topic_that_a_pattern_matches_is_an_input_like_others() -> None:
    synced = Synced(by_two_patterns_together, {"ax": 1, "ay": 1, "xb": 1})
    ax, ay, xb = name("ax"), name("ay"), name("xb")

    synced.sync.learn([ahead(synced.task("ax"), "ax")])

    assert synced.sync.limit_inputs_ahead(five_of(ax, ay, xb)) == {ax: 0, ay: 5, xb: 5}
    assert synced.sync.limit_inputs_ahead({ax: 5, ay: 0, xb: 0}) == {ax: 0, ay: 0, xb: 0}


def test_no_partition_is_read_that_feeds_a_repartition_ahead() -> None:
    synced = Synced(joining_behind_a_repartition, TWO_OF_EACH)
    available = five_of(*IN, *TABLE)

    synced.sync.learn([ahead(synced.task("table", 0), FIRST)])

    assert synced.sync.limit_inputs_ahead(available) == {**five_of(*TABLE), IN[0]: 0, IN[1]: 0}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_repartition_ahead_is_read_if_another_task_waits_for_it(*, is_reversed: bool) -> None:
    synced = Synced(joining_behind_a_repartition, TWO_OF_EACH)
    available = five_of(*IN, *TABLE)
    reports = [
        ahead(synced.task("table", 0), FIRST, starved=["table"]),
        ahead(synced.task("table", 1), "table", starved=[FIRST]),
    ]

    synced.sync.learn(reports[::-1] if is_reversed else reports)

    assert synced.sync.limit_inputs_ahead(available) == {**available, TABLE[1]: 0}


def test_sources_far_upstream_feed_a_repartition() -> None:
    synced = Synced(joining_behind_two_repartitions, {"in": 1, "first-table": 1, "second-table": 1})
    source, first, second = name("in"), name("first-table"), name("second-table")

    synced.sync.learn([ahead(synced.task("second-table"), SECOND)])
    of_second = synced.sync.limit_inputs_ahead(five_of(source, first, second))
    synced.sync.learn([ahead(synced.task("first-table"), FIRST)])
    of_first = synced.sync.limit_inputs_ahead(five_of(source, first, second))

    assert of_second == {source: 0, first: 0, second: 5}
    assert of_first == {source: 0, first: 5, second: 5}


def test_a_task_with_one_input_has_processed_all_it_has_read() -> None:
    assert Synced(copying, {"in": 2}).processed(**{"in": [3, 0]}) == {"in": [3, 0]}


def test_a_global_table_is_processed_as_far_as_it_is_read() -> None:
    synced = Synced(with_global_table, {"in": 1, "rates": 1})

    assert synced.processed(**{"in": [3]}, rates=[7]) == {"in": [3], "rates": [7]}


def test_buffered_records_are_not_processed() -> None:
    synced = Synced(joining, TWO_OF_EACH)

    synced.sync.learn(
        [TaskReport("0_0", waiting_from={"in": 4}), TaskReport("0_1", waiting_from={})]
    )

    assert synced.processed(**{"in": [6, 6]}, table=[2, 3]) == {"in": [4, 6], "table": [2, 3]}


def test_nothing_is_known_of_a_task_until_it_has_reported_its_buffer() -> None:
    synced = Synced(joining, TWO_OF_EACH)
    before = synced.processed(**{"in": [6, 6]}, table=[2, 3])

    synced.sync.learn([TaskReport("0_0", waiting_from={}), TaskReport("0_1", bytes_read=1)])

    assert before == {"in": [None, None], "table": [None, None]}
    assert synced.processed(**{"in": [6, 6]}, table=[2, 3]) == {"in": [6, None], "table": [2, None]}


@pytest.mark.parametrize("later", [[], [TaskReport("0_0", processed=1)]])
def test_a_buffer_stays_known_until_its_task_reports_another(later: list[TaskReport]) -> None:
    synced = Synced(joining, {"in": 1, "table": 1})
    synced.sync.learn([TaskReport("0_0", waiting_from={"in": 4})])

    synced.sync.learn(later)
    same = synced.processed(**{"in": [8]}, table=[3])
    synced.sync.learn([TaskReport("0_0", waiting_from={"in": 7})])

    assert same == {"in": [4], "table": [3]}
    assert synced.processed(**{"in": [8]}, table=[3]) == {"in": [7], "table": [3]}


def test_no_more_is_processed_than_is_read() -> None:
    synced = Synced(joining, {"in": 1, "table": 1})

    synced.sync.learn([TaskReport("0_0", waiting_from={"in": 9})])

    assert synced.processed(**{"in": [6]}, table=[3]) == {"in": [6], "table": [3]}


def test_a_partition_that_stale_metadata_omits_is_left_out() -> None:
    synced = Synced(copying, {"in": 2})

    synced.topics.counts = {"in": 1}

    assert synced.processed(**{"in": [3, 4]}, other=[2]) == {"in": [3]}


def test_the_source_of_a_repartition_is_unknown_while_a_task_has_buffered_records_of_it() -> None:
    synced = Synced(joining_behind_a_repartition, {"in": 1, "table": 1})
    results = []
    for offsets in ({}, {FIRST: 0}, {FIRST: 0, "table": 5}, {}):
        synced.sync.learn(synced.buffered("table", offsets))
        results.append(synced.processed(**{"in": [4]}, table=[8]))

    assert results == [
        {"in": [4], "table": [8]},
        {"in": [None], "table": [8]},
        {"in": [None], "table": [5]},
        {"in": [4], "table": [8]},
    ]


def test_the_source_of_a_repartition_is_unknown_until_all_tasks_behind_it_have_reported() -> None:
    synced = Synced(joining_behind_a_repartition, TWO_OF_EACH)
    first, second = synced.buffered("table", {})
    before = synced.processed(**{"in": [2, 0]}, table=[1, 1])

    synced.sync.learn([first])
    after_one = synced.processed(**{"in": [2, 0]}, table=[1, 1])
    synced.sync.learn([second])

    assert before == {"in": [None, None], "table": [None, None]}
    assert after_one == {"in": [None, None], "table": [1, None]}
    assert synced.processed(**{"in": [2, 0]}, table=[1, 1]) == {"in": [2, 0], "table": [1, 1]}


def test_records_that_are_buffered_behind_a_repartition_make_all_sources_upstream_unknown() -> None:
    partitions = {"in": 1, "first-table": 1, "second-table": 1}
    synced = Synced(joining_behind_two_repartitions, partitions)

    def processed_with(
        first: dict[str, int], second: dict[str, int]
    ) -> dict[str, list[int | None]]:
        reports = synced.buffered("first-table", first) + synced.buffered("second-table", second)
        synced.sync.learn(reports)
        return synced.processed(**{"in": [3]}, first_table=[3], second_table=[3])

    known = {"in": [3], "first-table": [3], "second-table": [3]}
    assert processed_with({}, {}) == known
    assert processed_with({}, {SECOND: 0}) == {**known, "in": [None], "first-table": [None]}
    assert processed_with({FIRST: 0}, {}) == {**known, "in": [None]}
