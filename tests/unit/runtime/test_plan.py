"""The stage of each subtopology, decided without a broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace import (
    ConfigError,
    KStream,
    Processor,
    Record,
    StreamsBuilder,
    StreamsConfig,
    TopologyError,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from headrace.runtime.plan import ExecutionPlan, plan_topology


def plan(builder: StreamsBuilder, **settings: Any) -> ExecutionPlan:
    return plan_topology(builder.build(), StreamsConfig(application_id="app", **settings))


def numbers(builder: StreamsBuilder, topic: str = "in", **options: Any) -> KStream[str, int]:
    return builder.stream(topic, key=str, value=int, **options)


class Forwarding(Processor[str, int, str, int]):
    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record)


def test_built_in_stateless_steps_run_inside_the_reader() -> None:
    builder = StreamsBuilder()
    numbers(builder).filter(lambda _k, v: v > 0).map_values(lambda v: v, value=int).to("out")

    planned = plan(builder)

    assert planned.stages == 0
    assert [subtopology.stage for subtopology in planned.subtopologies] == [0]
    assert not planned.subtopologies[0].runs_every_batch


def _counted(builder: StreamsBuilder) -> None:
    numbers(builder).group_by_key().count().to_stream().to("out")


def _processed(builder: StreamsBuilder) -> None:
    numbers(builder).process(Forwarding, key=str, value=int).to("out")


def _merged(builder: StreamsBuilder) -> None:
    numbers(builder).merge(numbers(builder, "other")).to("out")


def _patterned(builder: StreamsBuilder) -> None:
    builder.stream(re.compile("in-.*"), key=str, value=int).to("out")


def _partition_timed(builder: StreamsBuilder) -> None:
    numbers(builder, timestamp_extractor=UsePartitionTimeOnInvalidTimestamp()).to("out")


@pytest.mark.parametrize("build", [_counted, _processed, _merged, _patterned, _partition_timed])
def test_a_subtopology_with_state_or_several_inputs_runs_whole_in_a_stage(
    build: Callable[[StreamsBuilder], None],
) -> None:
    builder = StreamsBuilder()
    build(builder)

    assert [subtopology.stage for subtopology in plan(builder).subtopologies] == [1]


def test_an_extractor_without_memory_does_not_need_a_stage() -> None:
    builder = StreamsBuilder()
    numbers(builder, timestamp_extractor=WallclockTimestampExtractor()).to("out")

    assert plan(builder).stages == 0


def test_the_default_extractor_counts_too() -> None:
    builder = StreamsBuilder()
    numbers(builder).to("out")

    with_memory = UsePartitionTimeOnInvalidTimestamp()

    assert plan(builder, default_timestamp_extractor=with_memory).stages == 1


def test_the_stage_of_a_sub_topology_is_the_number_of_repartitions_before_it() -> None:
    builder = StreamsBuilder()
    stream = numbers(builder).select_key(lambda _k, v: str(v), key=str)
    again = stream.repartition(name="first").select_key(lambda _k, v: str(v), key=str)
    again.repartition(name="second").group_by_key().count().to_stream().to("out")

    planned = plan(builder)

    # The first part has no state, so it runs in the reader.
    assert [subtopology.stage for subtopology in planned.subtopologies] == [0, 1, 2]
    assert planned.repartitions == {
        "app-first-repartition": None,
        "app-second-repartition": None,
    }
    assert planned.upstream_ids(planned.subtopologies[2]) == {0, 1}
    assert planned.subtopology(1).upstream == (0,)


def test_a_join_after_a_repartition_waits_for_both_sides() -> None:
    builder = StreamsBuilder()
    table = builder.table("table", key=str, value=int)
    moved = numbers(builder).select_key(lambda _k, v: str(v), key=str)
    moved.join(table, lambda a, b: a + b, value=int).to("out")

    planned = plan(builder)
    joining = planned.reader_of("table")

    assert joining is not None
    assert joining.has_several_inputs
    assert joining.runs_every_batch
    assert any(len(group) == 2 and "table" in group for group in planned.copartitions)
    assert planned.table_topics == {"table"}


def test_tasks_that_may_wait_for_an_input_are_woken() -> None:
    builder = StreamsBuilder()
    numbers(builder).merge(numbers(builder, "other")).to("out")

    assert not plan(builder).subtopologies[0].runs_every_batch
    assert plan(builder, max_task_idle=timedelta(seconds=1)).subtopologies[0].runs_every_batch


def test_tasks_that_may_schedule_are_woken() -> None:
    builder = StreamsBuilder()
    _processed(builder)

    assert plan(builder).subtopologies[0].runs_every_batch


def test_a_repartition_that_leads_back_is_a_topic_of_the_log() -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=str)
    customers = builder.table("customers", key=str, value=str)
    joined = orders.join(customers, lambda o, c: o + c, foreign_key=lambda o: o, value=str)
    joined.to_stream().to("out")

    planned = plan(builder)

    assert len(planned.loops) == 1
    assert set(planned.loops) <= planned.written_topics
    [loop] = planned.loops
    reader = planned.reader_of(loop)
    assert reader is not None
    assert loop in reader.topics
    assert loop not in planned.repartitions


def test_global_tables_are_planned_apart() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", key=str, value=int)
    joined = numbers(builder).join(rates, lambda v, r: v * r, on=lambda k, _v: k, value=int)
    joined.to("out")

    planned = plan(builder)

    assert planned.global_topics == ("rates",)
    assert planned.global_stages() == [1]
    assert planned.reader_of("rates") is None
    assert [subtopology.looks_up for subtopology in planned.subtopologies] == [True]


def test_internal_repartitions_are_not_among_the_topics_that_are_written() -> None:
    builder = StreamsBuilder()
    numbers(builder).repartition(name="moved").to("out")

    assert plan(builder).written_topics == {"out"}


def test_a_topic_finds_its_reader_by_name_or_pattern() -> None:
    builder = StreamsBuilder()
    numbers(builder, "plain").to("out")
    builder.stream(re.compile("log-.*"), key=str, value=int).to("out2")

    planned = plan(builder)

    assert [planned.reader_of(topic) for topic in ("plain", "log-7", "others")] == [
        planned.subtopologies[0],
        planned.subtopologies[1],
        None,
    ]


def test_a_topic_that_two_patterns_match_has_no_reader() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a.*"), key=str, value=int).to("out")
    builder.stream(re.compile(".*b"), key=str, value=int).to("out2")

    planned = plan(builder)

    assert [planned.reader_of(topic) for topic in ("ax", "xb")] == list(planned.subtopologies)
    with pytest.raises(TopologyError, match="Topic 'ab' matches the pattern"):
        planned.reader_of("ab")


def test_an_application_without_an_id_is_not_planned() -> None:
    builder = StreamsBuilder()
    numbers(builder).to("out")

    with pytest.raises(ConfigError, match="application_id"):
        plan_topology(builder.build(), StreamsConfig())
