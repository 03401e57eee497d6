"""The runtime without Spark as a host of topologies, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headrace import ConsumerRecord, StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.brokers.log import RawRecord, TopicPartition
from tests.runtime.in_process import InProcessQuery


class InProcessHost:
    """Runs a topology in this process.

    Args:
        topology: The topology to run.
        topics: The topics it reads and writes.
        config: Its settings; the rest is this host's.
        folder: Where it keeps topics and checkpoint.
        partitions: How many partitions topics have.
        options: Of the query.
    """

    def __init__(
        self,
        topology: Topology,
        topics: Iterable[str],
        config: StreamsConfig,
        folder: Path,
        *,
        partitions: int = 1,
        **options: Any,
    ) -> None:
        settings = settings_of(config)
        log = open_log(config.with_settings(state_dir=folder))
        for topic in topics:
            log.create_topic(topic, partitions=partitions)
        log.close()
        self.query = InProcessQuery(topology, folder, **options, **settings)
        self.layout = self.query.layout
        """The tasks there are."""
        self._clock = 0
        self._read: dict[TopicPartition, int] = {}
        self._own: set[tuple[str, int, int]] = set()

    def run(self, records: Sequence[RawRecord], clock: int) -> None:
        """Write records to the log, and run batches until nothing is left."""
        placed = self.query.log.append(records)
        self._own.update((each.topic, each.partition, each.offset) for each in placed)
        self._clock = clock
        self.query.set_clock(clock)
        self.query.run()

    def written(self, topics: Iterable[str]) -> Iterator[ConsumerRecord]:
        """Yield what is new in topics."""
        log = self.query.log
        names = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in range(log.partition_count(topic))
        ]
        for name, end in log.end_offsets(names).items():
            start = self._read.get(name, 0)
            if end > start:
                self._read[name] = end
                for records in log.read(name, start, end):
                    yield from (each for each in records if each[:3] not in self._own)

    def dropped(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return how many records were dropped."""
        return self.query.dropped()

    def store(self, name: str) -> Any:
        """Return a store as the blobs of its tasks hold it."""
        return self.query.store(name, self._clock)


def settings_of(config: StreamsConfig) -> dict[str, Any]:
    """Return the settings that were given, as keywords."""
    return {name: getattr(config, name) for name in config.given}
