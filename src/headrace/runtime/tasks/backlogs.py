"""Backlogs: how a task keeps buffered records from batch to batch, and reads them again.

Of a topic the task state has the range of offsets, and the records stay in the log. No log has the
records of a repartition, so they are in blobs of bounded size. Each blob is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import intern

import msgspec

from headrace.brokers.log import TopicPartition, record_size, records_from_columns, slices
from headrace.brokers.sessions import Broker
from headrace.engine.task import Task
from headrace.engine.task_state import BufferedBlob, BufferedRange, BufferedRecord, TaskState
from headrace.records import ConsumerRecord, Headers
from headrace.runtime.batches import Range
from headrace.runtime.btree.blobs import BlobStore
from headrace.runtime.program import Program
from headrace.runtime.tasks.range_reader import read_ranges

_BLOB_BYTES = 1 << 20
"""How large a blob of buffered records is, unless one record alone is larger."""
_MUCH_BUFFERED = 16 << 20
"""How many bytes of a repartition may be buffered before others must catch up."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[BufferedRecord]).decode

Prefetch = Callable[[list[ConsumerRecord]], None]


class Backlogs:
    """The buffered records of one task during one batch.

    Args:
        program: The program that runs.
        open_log: Returns the log of this process.
        blobs: The state of the task.
        saved: The task state of the batch before.
        prefetch: Called with records before the task processes them.
    """

    def __init__(
        self,
        program: Program,
        open_log: Callable[[], Broker],
        blobs: BlobStore,
        saved: TaskState,
        prefetch: Prefetch,
    ) -> None:
        self._program = program
        self._open_log = open_log
        self._blobs = blobs
        self._blob_list = saved.buffered_blobs
        self._prefetch = prefetch
        self._open = {
            (each.topic, each.partition): _Backlog(each, self._records(each))
            for each in saved.buffered_ranges
        }
        self.ranges: list[BufferedRange] = []
        """The records that the task has read and not processed, once they are saved."""
        self.lost: dict[TopicPartition, int] = {}
        """How many buffered offsets of each partition were deleted before the task read them."""

    def resume(self, task: Task) -> None:
        """Begin the inputs of a task with what it has buffered."""
        for (topic, partition), backlog in self._open.items():
            task.resume(topic, backlog, partition=partition)

    def save(self, task: Task, state: TaskState, repartition_offsets: dict[str, int]) -> None:
        """Save what the task has not processed, into its state and into blobs.

        Args:
            task: The task, after it has processed what it could.
            state: Its state.
            repartition_offsets: The first offset of the records that came in this batch, by
                repartition. Blobs have those before.
        """
        unprocessed = task.unprocessed()
        for name in sorted(self._open.keys() | unprocessed.keys()):
            if buffered := _range_of(name, self._open.get(name), unprocessed.get(name, [])):
                self.ranges.append(buffered)
        for backlog in self._open.values():
            backlog.close()
        firsts = {each.topic: each.first for each in self.ranges}
        changes: dict[bytes, bytes | None] = {}
        kept: list[BufferedBlob] = []
        for blob in self._blob_list:
            if blob.end > firsts.get(blob.topic, blob.end):
                kept.append(blob)
            else:
                changes[_key(blob.topic, blob.first)] = None
        for (topic, _), records in unprocessed.items():
            if topic in repartition_offsets:
                new = [raw for raw in records if raw.offset >= repartition_offsets[topic]]
                kept += self._new_blobs(topic, new, changes)
        if changes:
            self._blobs.apply(changes)
        state.buffered, state.buffered_ranges, state.buffered_blobs = [], self.ranges, kept
        self._blob_list = kept

    def topics_ahead(self) -> list[str]:
        """Return the inputs of which so much is buffered that the planner should read no more."""
        sizes: dict[str, int] = {}
        for blob in self._blob_list:
            sizes[blob.topic] = sizes.get(blob.topic, 0) + blob.size
        most = self._program.config.buffered_records_per_partition
        return [
            each.topic
            for each in self.ranges
            if each.count >= most or sizes.get(each.topic, 0) >= _MUCH_BUFFERED
        ]

    def _new_blobs(
        self, topic: str, records: list[ConsumerRecord], changes: dict[bytes, bytes | None]
    ) -> Iterator[BufferedBlob]:
        sizes = [record_size(raw.key, raw.value, raw.headers) for raw in records]
        for start, end in slices(sizes, _BLOB_BYTES):
            some = records[start:end]
            data = _encode([(*raw[:-1], list(raw.headers)) for raw in some])
            first, last = some[0].offset, some[-1].offset
            changes[_key(topic, first)] = data
            yield BufferedBlob(topic, first, last + 1, len(data))

    def _records(self, buffered: BufferedRange) -> Iterator[list[ConsumerRecord]]:
        """Yield what a range holds, some records at a time, when they are needed."""
        topic = intern(buffered.topic)
        if topic in self._program.plan.repartitions:
            chunks = self._from_blobs(topic)
        else:
            chunks = self._from_log(TopicPartition(topic, buffered.partition), buffered)
        for records in chunks:
            some = [raw for raw in records if raw.offset >= buffered.first]
            self._prefetch(some)
            yield some

    def _from_log(
        self, name: TopicPartition, buffered: BufferedRange
    ) -> Iterator[list[ConsumerRecord]]:
        offsets = Range(*name, buffered.first, buffered.end)
        for _, columns in read_ranges(self._program, self._open_log(), [offsets], self.lost):
            yield records_from_columns(name, columns)

    def _from_blobs(self, topic: str) -> Iterator[list[ConsumerRecord]]:
        for blob in self._blob_list:
            if blob.topic == topic:
                [data] = self._blobs.get_many([_key(topic, blob.first)])
                assert data is not None, "the task state names the blobs"
                yield [
                    ConsumerRecord(
                        topic, partition, offset, timestamp, key, value, Headers(headers)
                    )
                    for _, partition, offset, timestamp, key, value, headers in _decode(data)
                ]


class _Backlog:
    """One range of buffered records; see `headrace.engine.record_queue.Backlog`."""

    def __init__(self, buffered: BufferedRange, chunks: Iterator[list[ConsumerRecord]]) -> None:
        self.position = buffered.first
        """The first offset that is not read."""
        self.end = buffered.end
        self.count = buffered.count
        self._chunks = chunks

    def read(self) -> list[ConsumerRecord]:
        records = next(self._chunks, [])
        if records:
            self.position = records[-1].offset + 1
        is_read = not records or self.position >= self.end
        # Compaction may have deleted some of them.
        self.count = 0 if is_read else max(1, self.count - len(records))
        if is_read:
            self.close()
        return records

    def close(self) -> None:
        """End the reading; the log may have a client open for it."""
        self._chunks.close()  # type: ignore[attr-defined]  # a generator


def _range_of(
    name: tuple[str, int], backlog: _Backlog | None, unprocessed: list[ConsumerRecord]
) -> BufferedRange | None:
    """Return what is read and not processed of one input; None if all of it is processed."""
    firsts = [raw.offset for raw in unprocessed[:1]]
    ends = [raw.offset + 1 for raw in unprocessed[-1:]]
    count = len(unprocessed)
    if backlog is not None and backlog.count:
        firsts.append(backlog.position)
        ends.append(backlog.end)
        count += backlog.count
    return BufferedRange(*name, min(firsts), max(ends), count) if count else None


def _key(topic: str, first: int) -> bytes:
    return b"buffered/%s/%d" % (topic.encode(), first)
