"""Topics that a function chooses, and that may not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import ProductionError, StreamsBuilder, StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.topology.topology import Topology
from tests.runtime.in_process import InProcessQuery


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
