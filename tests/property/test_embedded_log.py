"""The embedded log against a model of it: lists of records, and dictionaries of offsets."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace import ConsumerRecord, ProducerFencedError, ProducerRecord
from headrace.brokers import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from headrace.brokers.embedded import EmbeddedLog
from headrace.records import Headers
from tests.effort import examples

PARTITIONS = [TopicPartition(topic, number) for topic in ("plain", "table") for number in (0, 1)]

keys = st.sampled_from([b"a", b"b", b"c"])
written = st.builds(
    lambda partition, timestamp, key, value, headers: ProducerRecord(
        partition.topic, partition.partition, timestamp, key, value, Headers(headers)
    ),
    st.sampled_from(PARTITIONS),
    st.integers(0, 50),
    keys,
    st.none() | st.binary(max_size=3),
    st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
)
batches = st.lists(written, max_size=6)
offsets = st.dictionaries(
    st.sampled_from(PARTITIONS),
    st.builds(OffsetAndMetadata, st.integers(0, 9), st.text(max_size=3)),
)
groups = st.sampled_from(["one", "two"])


class EmbeddedLogMachine(RuleBasedStateMachine):
    """Writes, deletes, compacts and opens again; everything must be as in the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "topics.db"
        self.records: dict[TopicPartition, list[ConsumerRecord]] = {p: [] for p in PARTITIONS}
        self.beginnings = dict.fromkeys(PARTITIONS, 0)
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {"one": {}, "two": {}}

    @initialize()
    def create(self) -> None:
        self.log = EmbeddedLog(self.path)
        self.log.create_topic("plain", partitions=2)
        self.log.create_topic("table", partitions=2, settings={"cleanup.policy": "compact"})

    def teardown(self) -> None:
        self.log.close()
        self.folder.cleanup()

    def _write(self, batch: list[ProducerRecord]) -> None:
        for topic, number, timestamp, key, value, headers in batch:
            assert number is not None
            partition = TopicPartition(topic, number)
            record = ConsumerRecord(
                topic, number, self.ends[partition], timestamp, key, value, headers
            )
            self.records[partition].append(record)
            self.ends[partition] += 1

    @rule(batch=batches)
    def append(self, batch: list[ProducerRecord]) -> None:
        self.log.append(batch)
        self._write(batch)

    @rule(batch=batches, more=batches, group=groups, moved=offsets)
    def commit_transaction(
        self,
        batch: list[ProducerRecord],
        more: list[ProducerRecord],
        group: str,
        moved: dict[TopicPartition, OffsetAndMetadata],
    ) -> None:
        with self.log.transaction("id") as transaction:
            transaction.append(batch)
            transaction.commit_offsets(group, moved)
            transaction.append(more)
        self._write(batch + more)
        self.committed[group] |= moved

    @rule(batch=batches, group=groups, moved=offsets, fenced=st.booleans())
    def fail_transaction(
        self, batch: list[ProducerRecord], group: str, moved: dict[Any, Any], fenced: bool
    ) -> None:
        try:
            with self.log.transaction("id") as transaction:
                transaction.append(batch)
                transaction.commit_offsets(group, moved)
                if not fenced:
                    raise ZeroDivisionError
                with self.log.transaction("id"):
                    pass
        except (ZeroDivisionError, ProducerFencedError):
            pass

    @rule(group=groups, moved=offsets)
    def commit_offsets(self, group: str, moved: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.log.commit_offsets(group, moved)
        self.committed[group] |= moved

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        self.log.delete_group(group)
        self.committed[group] = {}

    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def delete_records(self, data: st.DataObject, partition: TopicPartition) -> None:
        offset = data.draw(st.integers(0, self.ends[partition]))
        self.log.delete_records({partition: offset})
        self.beginnings[partition] = max(self.beginnings[partition], offset)
        self.records[partition] = [r for r in self.records[partition] if r.offset >= offset]

    @rule()
    def clean(self) -> None:
        self.log.clean()
        for partition in PARTITIONS:
            if partition.topic == "table":
                last = {record.key: record.offset for record in self.records[partition]}
                self.records[partition] = [
                    r for r in self.records[partition] if last[r.key] == r.offset
                ]

    @rule()
    def open_again(self) -> None:
        self.log.close()
        self.log = EmbeddedLog(self.path)

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def is_as_in_the_model(self) -> None:
        assert self.log.beginning_offsets(PARTITIONS) == self.beginnings
        assert self.log.end_offsets(PARTITIONS) == self.ends
        for partition in PARTITIONS:
            start, end = self.beginnings[partition], self.ends[partition]
            read = [record for batch in self.log.read(partition, start, end) for record in batch]
            assert read == self.records[partition]
        for group, kept in self.committed.items():
            assert self.log.committed_offsets(group) == kept

    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def read_a_range(self, data: st.DataObject, partition: TopicPartition) -> None:
        start = data.draw(st.integers(self.beginnings[partition], self.ends[partition]))
        end = data.draw(st.integers(start, self.ends[partition]))
        read = [record for batch in self.log.read(partition, start, end) for record in batch]
        assert read == [r for r in self.records[partition] if start <= r.offset < end]

    @rule(timestamp=st.integers(0, 60), partition=st.sampled_from(PARTITIONS))
    def find_a_time(self, timestamp: int, partition: TopicPartition) -> None:
        later = (r for r in self.records[partition] if r.timestamp >= timestamp)
        first = next(later, None)
        expected = None if first is None else OffsetAndTimestamp(first.offset, first.timestamp)
        assert self.log.offsets_for_times({partition: timestamp}) == {partition: expected}


TestEmbeddedLog = EmbeddedLogMachine.TestCase
TestEmbeddedLog.settings = settings(max_examples=examples(30), stateful_step_count=25)
