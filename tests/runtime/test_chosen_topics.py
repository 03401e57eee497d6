"""Topics that a function chooses, and that may not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import (
    BrokerUnavailableError,
    Processor,
    ProcessorContext,
    ProductionError,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.topology.topology import Topology
from tests.brokers.appending import assert_holds
from tests.kafka_broker import RunningBroker
from tests.runtime.in_process import InProcessQuery
from tests.unique_names import unique


def copying(*, is_stateful: bool) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    if is_stateful:
        stream = stream.repartition()
    stream.to(lambda _key, value, _context: value, name="chooses")
    return builder.build()


def query_of(folder: Path, topology: Topology, **settings: Any) -> InProcessQuery:
    log = open_log(StreamsConfig(application_id="application", state_dir=folder))
    for topic in ("in", "there", "letters"):
        log.create_topic(topic)
    values = (b"there", b"missing", b"no/name", b"there", b"missing")
    log.append([("in", 0, time, b"k", value, None) for time, value in enumerate(values)])
    log.close()
    return InProcessQuery(
        topology, folder, errors_dead_letter_queue_topic_name="letters", **settings
    )


def values(query: InProcessQuery, topic: str) -> list[bytes | None]:
    name = TopicPartition(topic, 0)
    end = query.log.end_offsets([name])[name]
    return [record.value for some in query.log.read(name, 0, end) for record in some]


@pytest.mark.parametrize("is_stateful", [False, True])
def test_records_for_topics_that_do_not_exist_can_be_left_out(
    tmp_path: Path, is_stateful: bool
) -> None:
    topology = copying(is_stateful=is_stateful)
    query = query_of(tmp_path, topology, production_exception_handler="continue")

    query.run()

    assert values(query, "there") == [b"there", b"there"]
    assert values(query, "letters") == [b"missing", b"no/name", b"missing"]
    [dropped] = [nodes["chooses"] for nodes in query.dropped().values() if "chooses" in nodes]
    assert dropped == {"production": 3}


def test_a_record_for_a_topic_that_does_not_exist_stops_the_application(tmp_path: Path) -> None:
    query = query_of(tmp_path, copying(is_stateful=False))

    with pytest.raises(ProductionError) as caught:
        query.run()

    assert str(caught.value) == (
        "Sink 'chooses' could not write a record: There is no topic 'missing'. Create it with "
        '`headrace topics create missing`. Or set `production_exception_handler="continue"` to '
        "leave such records out."
    )
    error = caught.value
    assert (error.node, error.topic, error.offset) == ("chooses", "in", 1)
    assert values(query, "letters") == [b"missing"]


def test_on_kafka_records_for_topics_that_do_not_exist_can_be_left_out_too(
    kafka: RunningBroker, tmp_path: Path
) -> None:
    source, there, dead_letters, application = (
        unique(name) for name in ("in", "there", "letters", "application")
    )
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address, state_dir=tmp_path))
    for topic in (source, there, dead_letters):
        log.create_topic(topic)
    chosen = [there.encode(), unique("missing").encode(), b"no/name", there.encode()]
    log.append([(source, 0, time, b"k", value, None) for time, value in enumerate(chosen)])
    log.close()
    builder = StreamsBuilder()
    stream = builder.stream(source, key=str, value=str)
    stream.to(lambda _key, value, _context: value, name="chooses")
    query = InProcessQuery(
        builder.build(),
        tmp_path,
        application_id=application,
        bootstrap_servers=kafka.address,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name=dead_letters,
    )

    query.run()

    assert query.dropped() == {"0_0": {"chooses": {"production": 2}}}
    assert_holds(query.log, TopicPartition(there, 0), [chosen[0], chosen[3]])
    assert_holds(query.log, TopicPartition(dead_letters, 0), chosen[1:3])
    query.log.close()


class Forwarding(Processor[str, str, str, str]):
    """Forwards each record."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class ForwardingLater(Processor[str, str, str, str]):
    """Forwards from a punctuation."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        record = Record("k", "there", 1)
        context.schedule(1, PunctuationType.STREAM_TIME, lambda _time: context.forward(record))

    def process(self, record: Record[str, str]) -> None:
        pass


def behind(step: str) -> Topology:
    """Return a topology that writes to chosen topics behind a step that catches errors."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    if step == "aggregate":
        stream = stream.group_by_key().reduce(lambda _old, new: new).to_stream()
    else:
        stream = stream.process(Forwarding if step == "processor" else ForwardingLater)
    stream.to(lambda _key, value, _context: value, name="chooses", key=str, value=str)
    return builder.build()


@pytest.mark.parametrize("cache", [0, 1], ids=["without_cache", "with_cache"])
@pytest.mark.parametrize("step", ["processor", "punctuation", "aggregate"])
def test_a_broker_that_is_away_drops_no_record_for_a_chosen_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, cache: int
) -> None:
    leaves_out: Any = {
        "processing_exception_handler": "continue",
        "production_exception_handler": "continue",
        "statestore_cache_max_bytes": cache,
    }
    query = query_of(tmp_path, behind(step), **leaves_out)
    counted = type(query.log).partition_count

    def away(_log: object, topic: str) -> int:
        raise BrokerUnavailableError(f"No answer about {topic!r}.")

    with monkeypatch.context() as patched:
        patched.setattr(type(query.log), "partition_count", away)
        end = query.planner.next(query.position)
        with pytest.raises(BrokerUnavailableError, match="No answer about 'there'"):
            query.replay(query.position, end)

    assert type(query.log).partition_count is counted
    query.replay(query.position, end)
    assert set(values(query, "there")) == {b"there"}
