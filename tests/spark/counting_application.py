"""An application that counts: each record of a key shows, so a lost or doubled one is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chaos.processes import Session
from headrace import KafkaStreams, StreamsBuilder, Topology
from headrace.brokers.log import TopicLog, TopicPartition
from tests.spark.hosts import await_that

PARTITIONS = 2
KEYS = 4

SETTINGS = {"num.stream.threads": "2", "statestore.cache.max.bytes": "0"}

_ALONE = """
import json, sys
from headrace import KafkaStreams
from tests.spark.counting_application import counting
name, settings = sys.argv[1:]
sys.exit(KafkaStreams(counting(name), json.loads(settings)).run())
"""


def counting(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}-in", key=str, value=str)
    words.group_by_key().count(materialized="counts").to_stream().to(f"{name}-out")
    return builder.build()


class CountingApplication:
    """An application with what it is given and what it has written.

    Args:
        settings: Its settings, under Kafka's names; `SETTINGS` and its id are among them.
        log: Where its topics are; they are made here.
    """

    def __init__(self, settings: Mapping[str, str], log: TopicLog) -> None:
        self.name = settings["application.id"]
        self.settings = settings
        self.log = log
        for topic in (f"{self.name}-in", f"{self.name}-out"):
            log.create_topic(topic, partitions=PARTITIONS)
        self.outputs = [TopicPartition(f"{self.name}-out", p) for p in range(PARTITIONS)]
        self.given = 0

    def made(self) -> KafkaStreams:
        """Return it for this process, not started."""
        return KafkaStreams(counting(self.name), self.settings)

    @contextmanager
    def alone(self, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """The application in another process, with its Java and its workers, once it works.

        Args:
            options: Of that process.
        """
        command = [sys.executable, "-c", _ALONE, self.name, json.dumps(self.settings)]
        process = subprocess.Popen(command, text=True, start_new_session=True, **options)
        try:
            self.give(10)
            self.assert_each_once()
            yield process
        finally:
            Session(process.pid).kill()
            process.communicate()

    def give(self, records: int) -> None:
        """Write ``records`` more records of each key."""
        self.given += records
        self.log.append(
            [
                (f"{self.name}-in", key % PARTITIONS, 1, b"k%d" % key, b"v", None)
                for _ in range(records)
                for key in range(KEYS)
            ]
        )

    def results(self) -> dict[bytes | None, list[int]]:
        """Return all that was written and committed, by key."""
        found = defaultdict[bytes | None, list[int]](list)
        for name, end in self.log.end_offsets(self.outputs).items():
            for records in self.log.read(name, 0, end):
                for each in records:
                    found[each.key].append(int.from_bytes(each.value or b""))
        return dict(found)

    def assert_each_once(self, streams: KafkaStreams | None = None) -> None:
        """Wait until all is counted, and see that nothing was lost or repeated."""
        ends = self.log.end_offsets
        await_that(
            lambda: (
                sum(ends(self.outputs).values()) >= KEYS * self.given
                and sum(map(len, self.results().values())) >= KEYS * self.given
            ),
            f"{self.given} results for each key",
            streams,
            found=lambda: {key: len(counts) for key, counts in self.results().items()},
        )
        expected = list(range(1, self.given + 1))
        assert self.results() == {b"k%d" % key: expected for key in range(KEYS)}
