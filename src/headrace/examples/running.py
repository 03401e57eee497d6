"""Runs an example with generated input, and copies its files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from headrace.app import KafkaStreams
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.brokers.opening import open_log
from headrace.config import StreamsConfig
from headrace.errors import StreamsError, TopicExistsError
from headrace.examples.catalogue import Example
from headrace.examples.feeding import Encoding, Feed, write_paced

_log = logging.getLogger("headrace")

_KEPT = {"retention.ms": "-1"}
"""Feeds have times of long ago, which a broker would delete after some minutes."""

_COPIED = {".py", ".md", ".svg"}


def config_for(name: str, config: StreamsConfig) -> StreamsConfig:
    """Return settings with which an example has an embedded log and a state of its own."""
    folder = config.state_dir / "examples" / name
    return config.with_settings(state_dir=folder, embedded_path=None)


def used_topics(log: TopicLog, topics: Iterable[str]) -> list[str]:
    """Return those topics of an example that already hold records."""
    there = {*log.list_topics()}
    used = []
    for topic in sorted(topics):
        if topic not in there:
            continue
        names = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
        if log.beginning_offsets(names) != log.end_offsets(names):
            used.append(topic)
    return used


def create_topics(log: TopicLog, partitions: Mapping[str, int]) -> None:
    """Create the topics of an example that are missing; their records are kept for ever."""
    for topic, count in partitions.items():
        with suppress(TopicExistsError):
            log.create_topic(topic, partitions=count, settings=_KEPT)


def start_afresh(config: StreamsConfig, apps: Iterable[KafkaStreams]) -> None:
    """Delete the state of the applications of an example, and all topics of its own embedded log.

    Raises:
        StreamsError: The example runs in another process.
    """
    for app in apps:
        KafkaStreams(app.topology, app.config.overlaid_by(config)).clean_up()
    with closing(open_log(config)) as log:
        for topic in log.list_topics():
            log.delete_topic(topic)


@contextmanager
def fed(
    app: KafkaStreams, feed: Feed, on_end: Callable[[int], None] = lambda _: None
) -> Iterator[None]:
    """Write the records of a feed at its pace, in a thread, for the time of a block.

    Args:
        app: The application that reads them.
        feed: The feed.
        on_end: Called with the number of records if the feed ends before the block.
    """
    stop = threading.Event()
    arguments = (app, feed, stop, on_end)
    thread = threading.Thread(target=_write, args=arguments, name="feed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _write(
    app: KafkaStreams, feed: Feed, stop: threading.Event, on_end: Callable[[int], None]
) -> None:
    try:
        with closing(open_log(app.config)) as log:
            # Topics may be there already, with other numbers of partitions.
            partitions = {topic: log.partition_count(topic) for topic in feed.TOPICS}
            encoding = Encoding(app, partitions)
            written = write_paced(log, encoding, feed.feed(), feed.PER_SECOND, stop)
        if not stop.is_set():
            on_end(written)
    except StreamsError as error:
        _log.warning("The input cannot be written: %s", error)


def topics_of(app: KafkaStreams, inputs: Mapping[str, int]) -> dict[str, int]:
    """Return the topics of an example, with their partition counts: also of its dead letters."""
    count = max(inputs.values())
    letters = app.config.errors_dead_letter_queue_topic_name
    written = [*Encoding(app).sinks, *([letters] if letters else [])]
    return dict.fromkeys(written, count) | dict(inputs)


def copy_files(example: Example, folder: Path) -> list[Path]:
    """Write the files of an example to a new folder, as a program of its own; return their paths.

    Raises:
        FileExistsError: The folder exists.
    """
    folder.mkdir(parents=True)
    written = []
    for path in sorted(example.folder.iterdir()):
        if path.suffix in _COPIED and path.name != "__init__.py":
            text = path.read_text(encoding="utf-8").replace(f"from {example.package}.", "from ")
            (folder / path.name).write_text(text, encoding="utf-8")
            written.append(folder / path.name)
    return written
