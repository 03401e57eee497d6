"""The whole story on Spark: batch and stream, a second version, the switch, and the way back."""

from __future__ import annotations

import sys
import time
from contextlib import closing

from headrace import KafkaStreams, StreamsConfig
from headrace.brokers import open_log
from headrace.examples.child_settings import run_to_its_end, settings_file
from headrace.examples.feeding import Encoding
from headrace.examples.reprocess.app import app, word_count
from headrace.examples.reprocess.feed import TOPICS, feed
from headrace.examples.reprocess.serving import POINTER, last_values, read_counts, switch_to
from headrace.examples.running import create_topics

OUTPUTS = [f"word-counts-{each}" for each in ("batch", "v1", "v2")]
ALL_TOPICS = {**TOPICS, **dict.fromkeys([POINTER, "lines-dead", *OUTPUTS], 1)}


def applications() -> list[KafkaStreams]:
    """Return all applications of the story."""
    return [word_count("v1", name="batch"), word_count("v1"), word_count("v2")]


def main(config: StreamsConfig) -> int:
    """Run the story once; return 0 if batch and stream agree."""
    with closing(open_log(config)) as log:
        create_topics(log, ALL_TOPICS)
        log.append(map(Encoding(app, TOPICS).raw, feed()))
    run_as_batch(word_count("v1", name="batch"), config)
    run_as_stream(word_count("v1"), config)
    batch, stream = (last_values(config, f"word-counts-{n}", int) for n in ("batch", "v1"))
    print("Batch and stream count the same:", batch == stream)

    switch_to("v1", config)
    run_as_batch(word_count("v2"), config)
    reset("word-count-v2", config)
    run_as_batch(word_count("v2"), config)
    for version in ("v1", "v2", "v1"):
        switch_to(version, config)
        current, counts = read_counts(config)
        print(f"{current}: Streams, {counts.get('Streams,', 0)} streams {counts['streams']}")
    return 0 if batch == stream else 1


def run_as_batch(streams: KafkaStreams, config: StreamsConfig) -> None:
    """Process the records that are there, and end."""
    merged = streams.config.overlaid_by(config)
    with KafkaStreams(streams.topology, merged, trigger="available_now") as run:
        run.await_termination()


def run_as_stream(streams: KafkaStreams, config: StreamsConfig) -> None:
    """Process records as they come, until none is left for now."""
    with KafkaStreams(streams.topology, streams.config.overlaid_by(config)) as run:
        while not run.lag() or any(each.offset_lag for each in run.lag().values()):
            time.sleep(0.2)


def reset(application_id: str, config: StreamsConfig) -> None:
    """Run ``headrace reset … --to-offset 0``."""
    with settings_file(config) as file:
        words = [
            "reset",
            application_id,
            "--to-offset",
            "0",
            "--yes",
            "--command-config",
            str(file),
        ]
        run_to_its_end([sys.executable, "-m", "headrace", *words])
