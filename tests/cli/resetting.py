"""An application that has run, for tests that reset it."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.home import ApplicationHome
from headrace.records import ProducerRecord

DAY = 86_400_000


def ran(log: Broker, application: str, topic: str, folder: Path) -> Path:
    """Leave what an application leaves that has read 6 of 10 records, 2 partitions."""
    log.create_topic(topic, partitions=2)
    for partition in (0, 1):
        log.append(ProducerRecord(topic, partition, (at + 1) * DAY, b"k", b"v") for at in range(10))
    names = [TopicPartition(topic, partition) for partition in (0, 1)]
    log.commit_offsets(application, dict.fromkeys(names, OffsetAndMetadata(6, "own")))
    log.create_topic(f"{application}-markers", partitions=2)
    log.commit_offsets(
        f"{application}-markers",
        {TopicPartition(f"{application}-markers", 0): OffsetAndMetadata(3, "marker")},
    )
    log.create_topic(f"{application}-counts-changelog", partitions=2)
    state_dir = folder / ".headrace"
    checkpoint = ApplicationHome(state_dir, state_dir, application, log.cluster_id()).checkpoint
    (checkpoint / "spark").mkdir(parents=True)
    (checkpoint / "headrace.json").write_text("{}")
    return checkpoint


def offsets(log: Broker, group: str) -> dict[int, OffsetAndMetadata]:
    found = log.committed_offsets(group).items()
    return {name.partition: without_word(kept) for name, kept in found}


def without_word(kept: OffsetAndMetadata) -> OffsetAndMetadata:
    """Offsets without the word that each reset has of its own."""
    return kept._replace(metadata=re.sub(r" [0-9a-f]{32}$", "", kept.metadata))
