"""Batch and stream give the same, a second version is compared, and bad input is kept."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from headrace import KafkaStreams
from headrace.brokers import open_log
from headrace.examples.checking import Fate, fates_of, on_driver
from headrace.examples.feeding import Encoding, FeedRecord
from headrace.examples.reprocess.app import app, word_count
from headrace.examples.reprocess.feed import START, TOPICS, feed
from headrace.examples.reprocess.serving import POINTER, last_values, read_counts, switch_to
from headrace.runtime.in_process import InProcessQuery

GOOD = FeedRecord("lines", "a", "Streams, tables and streams of tables", START)


def test_one_batch_and_many_small_ones_give_the_same_counts() -> None:
    stores = []
    for each_alone in (True, False):
        with on_driver(app, commit_each_record=each_alone) as run:
            run.write(feed())
            run.driver.commit()
            last = {each.key: each.value for each in run.read("word-counts-v1")}
            stores.append(dict(run.driver.get_key_value_store("counts").all()))
            assert last == stores[-1]

    assert stores[0] == stores[1]


def test_the_versions_differ_in_capitals_and_punctuation() -> None:
    counts = {}
    for version in ("v1", "v2"):
        with on_driver(word_count(version)) as run:
            run.write([GOOD])
            counts[version] = {e.key: e.value for e in run.read(f"word-counts-{version}")}

    assert counts == {
        "v1": {"Streams,": 1, "tables": 2, "and": 1, "streams": 1, "of": 1},
        "v2": {"streams": 2, "tables": 2, "and": 1, "of": 1},
    }


def test_bad_input_is_counted_and_kept() -> None:
    assert fates_of(app, GOOD) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.PROCESSED,  # a line like any other
        "null key": Fate.PROCESSED,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def run_in_process(streams: KafkaStreams, folder: Path, records: list[FeedRecord]) -> None:
    """Run an application over the records that are there, then over others, five at a time."""
    query = InProcessQuery(streams.topology, streams.config.with_settings(state_dir=folder))
    query.run()
    encoding = Encoding(streams, TOPICS)
    for first in range(0, len(records), 5):
        query.log.append(map(encoding.raw, records[first : first + 5]))
        query.run()
    query.log.close()


def test_end_to_end_a_second_version_is_compared_switched_to_and_rolled_back(
    tmp_path: Path,
) -> None:
    config = app.config.with_settings(state_dir=tmp_path)
    with closing(open_log(config)) as log:
        for topic in ("lines", POINTER, "word-counts-batch", "word-counts-v1", "word-counts-v2"):
            log.create_topic(topic, partitions=TOPICS.get(topic, 1))

    run_in_process(word_count("v1"), tmp_path, list(feed()))
    run_in_process(word_count("v1", name="batch"), tmp_path, [])
    batch = last_values(config, "word-counts-batch", int)
    assert last_values(config, "word-counts-v1", int) == batch

    run_in_process(word_count("v2"), tmp_path, [])
    before = last_values(config, "word-counts-v2", int)
    words = ["reset", "word-count-v2", "--to-offset", "0", "--yes", "--state-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "headrace", *words], check=True)  # noqa: S603
    run_in_process(word_count("v2"), tmp_path, [])
    assert last_values(config, "word-counts-v2", int) == before != batch

    seen = []
    for version in ("v1", "v2", "v1"):
        switch_to(version, config)
        seen.append(read_counts(config))
    assert seen == [("v1", batch), ("v2", before), ("v1", batch)]
