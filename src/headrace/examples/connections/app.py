"""The rebalancer: after each window it spreads the connections over the nodes that were alive."""

from __future__ import annotations

from headrace import (
    Duration,
    EmitStrategy,
    KafkaStreams,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WallclockTimestampExtractor,
    Windowed,
)
from headrace.examples.connections.model import (
    ConnectionDeploymentScheme,
    HeartBeat,
    HeartBeatsList,
    recalculate,
)


def check(key: str | None, beat: HeartBeat | None) -> None:
    """Refuse a record that is no heartbeat; its dead letter says why."""
    if key is None or beat is None:
        msg = "The record has no key." if key is None else "The record has no heartbeat."
        raise ValueError(msg)


def add(_tick: str, beat: HeartBeat, beats: HeartBeatsList) -> HeartBeatsList:
    """Return the heartbeats of the window and one more."""
    return beats.add_heart_beat(beat)


def scheme(window: Windowed[str], beats: HeartBeatsList) -> tuple[str, ConnectionDeploymentScheme]:
    """Return the record of the new scheme."""
    return window.key, recalculate(beats)


def topology(window: Duration = "5s") -> Topology:
    """Return the rebalancer; a test takes shorter windows."""
    builder = StreamsBuilder()
    (
        builder.stream("heartbeats", key=str, value=HeartBeat)
        .peek(check)
        .group_by_key()
        .windowed_by(TimeWindows(window))
        .emit_strategy(EmitStrategy.on_window_close())
        .aggregate(HeartBeatsList, add, materialized="heartbeats-store")
        .to_stream()
        .map(scheme)
        .to("connection-deployment-scheme")
    )
    return builder.build()


app = KafkaStreams(
    topology(),
    application_id="connections-rebalancer",
    default_timestamp_extractor=WallclockTimestampExtractor(),
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="heartbeats-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
