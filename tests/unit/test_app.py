"""KafkaStreams: a topology together with its settings."""

from __future__ import annotations

import pytest

from headrace import ConfigError, KafkaStreams, MissingSerdeError, StreamsBuilder, StreamsError


def program() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    return builder


def test_an_application_holds_its_topology_and_settings() -> None:
    topology = program().build()

    app = KafkaStreams(topology, {"application.id": "one"}, application_id="two")

    assert app.topology is topology
    assert app.config.application_id == "two"


def test_an_application_needs_an_id() -> None:
    with pytest.raises(ConfigError, match="application_id"):
        KafkaStreams(program().build())


def test_a_missing_serde_shows_when_the_application_is_made() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")

    with pytest.raises(MissingSerdeError):
        KafkaStreams(builder.build(), application_id="app")


def test_this_version_cannot_run_yet() -> None:
    app = KafkaStreams(program().build(), application_id="app")

    with pytest.raises(StreamsError, match="Application 'app' cannot run yet"):
        app.run()
