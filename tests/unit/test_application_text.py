"""`str(streams)`: topology, stores, and where tasks run."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder, StreamsConfig
from headrace.application_text import application_text


def counting(**settings: object) -> KafkaStreams:
    builder = StreamsBuilder()
    names = builder.global_table("names", key=str, value=str, materialized="names-store")
    (
        builder.stream("views", key=str, value=str)
        .left_join(names, lambda view, name: f"{view} {name}", on=lambda key, _: key, value=str)
        .group_by_key()
        .count(materialized="counts")
        .to_stream()
        .to("view-counts")
    )
    return KafkaStreams(builder.build(), {"application.id": "views-app", **settings})


def test_an_application_prints_where_it_runs_its_stores_and_its_topology() -> None:
    app = counting()

    lines = str(app).splitlines()

    assert lines[:6] == [
        "Application 'views-app': CREATED",
        "Topics: the embedded log .headrace/topics.db",
        "Tasks: run by Spark at local[*]",
        "Stores:",
        "  counts, in subtopology 1",
        "  names-store, global, from names",
    ]
    assert "\n".join(lines[6:]) == str(app.topology.describe()).rstrip()


def test_an_application_prints_its_servers_and_its_master() -> None:
    app = counting(**{"bootstrap.servers": "one:9092", "num.stream.threads": 2})
    other = counting(**{"spark.master": "spark://host:7077"})

    assert str(app).splitlines()[1:3] == [
        "Topics: Kafka at one:9092",
        "Tasks: run by Spark at local[2]",
    ]
    assert "Tasks: run by Spark at spark://host:7077" in str(other)


def test_a_running_application_prints_the_tasks_that_read_topics() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    topology = builder.build().describe()
    positions = {("in", 1): (5, 2), ("in", 0): (7, 0), ("other", 0): (1, 1)}

    text = application_text(
        StreamsConfig(application_id="app"), "RUNNING", "host:42", topology, positions
    )

    assert text.splitlines()[2:7] == [
        "Tasks: run by host:42; this process stands by",
        "  0_0  in-0 at offset 7, lag 0",
        "  0_1  in-1 at offset 5, lag 2",
        "Stores:",
        "  none",
    ]
