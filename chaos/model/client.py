"""The client's side of the model: the log that the sink writes to, made of single requests.

It does what `headrace.brokers.kafka` and librdkafka do together: every step is a request that is
sent again while no answer comes, until a timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from chaos.model.broker import RETRIABLE, Code, ModelBroker, RequestRefusedError, Target
from chaos.model.network import Connection, Request, TimedOutError
from headrace.brokers.log import (
    LeadershipKind,
    MemberDescription,
    OffsetAndMetadata,
    RawRecord,
    TopicPartition,
    producer_record,
)
from headrace.brokers.sessions import GroupMetadata, OnDelivery
from headrace.errors import (
    BrokerError,
    BrokerUnavailableError,
    CommitFailedError,
    ProducerFencedError,
    RecordRefusedError,
    StreamsError,
    TopicExistsError,
    UnknownTopicError,
)
from headrace.records import ConsumerRecord, ProducerRecord, RecordMetadata

_TRIES = 3
_PAUSES = 60
_BATCH_RECORDS = 2


class Client:
    """Sends requests until they are answered, and gives up in time."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def ask(self, method: Any, *, transactional_id: str = "", **arguments: Any) -> Any:
        """Return the answer to a request.

        Raises:
            ProducerFencedError: Another producer took over.
            BrokerError: The broker says no, or nothing.
        """
        if transactional_id:
            arguments["transactional_id"] = transactional_id
        request: Request = partial(method, **arguments)
        silences = pauses = 0
        while True:
            try:
                return self.connection.call(request)
            except TimedOutError:
                silences += 1
                if silences == _TRIES:
                    msg = f"The broker did not answer {method.__name__!r}."
                    raise BrokerUnavailableError(msg) from None
            except RequestRefusedError as error:
                pauses += 1
                if error.code not in RETRIABLE or pauses == _PAUSES:
                    raise _translated(error, transactional_id, arguments) from error
                self.connection.pause()


def _translated(
    error: RequestRefusedError, transactional_id: str, arguments: Mapping[str, Any]
) -> StreamsError:
    if error.code is Code.PRODUCER_FENCED:
        return ProducerFencedError(transactional_id)
    if error.code is Code.RECORD_TOO_LARGE:
        return RecordRefusedError(arguments["records"][0], reason="it is too large.")
    if error.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
        if "topic" in arguments:
            return UnknownTopicError(arguments["topic"])
        names = list(arguments.get("offsets", ())) or [arguments["partition"]]
        return UnknownTopicError(names[0].topic, partition=names[0].partition)
    if error.code is Code.TOPIC_ALREADY_EXISTS:
        return TopicExistsError(arguments["topic"])
    if error.code is Code.UNKNOWN_MEMBER_ID:
        return CommitFailedError(arguments["group"])
    return BrokerError(error.code.value)


class Producer:
    """A producer of a transactional id, from its first request on."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client = client
        self.id = transactional_id
        self._sequences: dict[TopicPartition, int] = {}
        self.targets: list[Target] = []
        """The participants of the open transaction."""
        self.take_over()

    def take_over(self) -> None:
        """Get an epoch that fences all before."""
        _, self.epoch = self._ask(ModelBroker.init_producer_id)

    def send(self, records: Iterable[ProducerRecord]) -> None:
        """Write records, a few of a partition at a time, each request after the last."""
        by_partition: dict[TopicPartition, list[ProducerRecord]] = {}
        for record in records:
            assert record.partition is not None
            name = TopicPartition(record.topic, record.partition)
            by_partition.setdefault(name, []).append(record)
        self._add([name for name in by_partition if name not in self.targets])
        for name, some in by_partition.items():
            for start in range(0, len(some), _BATCH_RECORDS):
                self._produce(name, some[start : start + _BATCH_RECORDS])

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Add offsets of a group to the transaction."""
        if group not in self.targets:
            self._add([group])
        self._ask(
            ModelBroker.txn_offset_commit, epoch=self.epoch, group=group, offsets=dict(offsets)
        )

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        self._ask(ModelBroker.end_txn, epoch=self.epoch, commit=commit)
        self.targets = []

    def _produce(self, name: TopicPartition, records: list[ProducerRecord]) -> None:
        sequence = self._sequences.get(name, 0)
        self._ask(
            ModelBroker.produce,
            epoch=self.epoch,
            partition=name,
            sequence=sequence,
            records=records,
        )
        self._sequences[name] = sequence + len(records)

    def _add(self, targets: Sequence[Target]) -> None:
        if targets:
            self.targets += targets
            self._ask(ModelBroker.add_partitions_to_txn, epoch=self.epoch, targets=list(targets))

    def _ask(self, method: Any, **arguments: Any) -> Any:
        return self._client.ask(method, transactional_id=self.id, **arguments)


class IdempotentProducer:
    """A producer outside of transactions: a request that arrives twice is written once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._producer: int | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def send(self, record: ProducerRecord) -> RecordMetadata:
        """Write a record after the last one."""
        if self._producer is None:
            self._producer = self._client.ask(ModelBroker.new_producer_id)
            self._sequences = {}
        name = TopicPartition(record.topic, record.partition or 0)
        sequence = self._sequences.get(name, 0)
        try:
            offset = self.produce(name, record, sequence)
        except BrokerUnavailableError:
            self._producer = None  # the next sequence is unknown
            raise
        self._sequences[name] = sequence + 1
        return RecordMetadata(*name, offset)

    def produce(self, name: TopicPartition, record: ProducerRecord, sequence: int) -> int:
        """Send a record until it is taken; return its offset."""
        offset: int = self._client.ask(
            ModelBroker.append,
            partition=name,
            records=[record],
            producer=self._producer,
            sequence=sequence,
        )
        return offset


class ModelTransaction:
    """A `LogTransaction` of a producer of its own."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client = client
        self._id = transactional_id
        self._offsets: list[tuple[str, Mapping[TopicPartition, OffsetAndMetadata]]] = []

    def __enter__(self) -> ModelTransaction:
        self.producer = self.open_producer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool | None:
        if kind is not None:
            self._abort(kind)
        elif self.producer.targets or self._offsets:
            try:
                self.send_offsets()
            except Exception as failure:
                self._abort(type(failure))
                raise
            # Without an answer the outcome is unknown: an abort might be too late.
            self.commit()
        return None

    def append(self, records: Iterable[RawRecord], /) -> None:
        self.producer.send([producer_record(record) for record in records])

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        self._offsets.append((group, dict(offsets)))

    def open_producer(self) -> Producer:
        """Return the producer that writes it."""
        return Producer(self._client, self._id)

    def send_offsets(self) -> None:
        """Send the offsets that were gathered."""
        for group, offsets in self._offsets:
            self.producer.send_offsets(group, offsets)

    def commit(self) -> None:
        """Ask for the end of the transaction."""
        self.producer.end(commit=True)

    def _abort(self, kind: type[BaseException]) -> None:
        # A killed process sends nothing more.
        if self.producer.targets and issubclass(kind, Exception):
            with suppress(BrokerError):  # the next producer of the id ends it
                self.producer.end(commit=False)


class ModelProducerSession:
    """A `ProducerSession` that sends each record by itself."""

    delivers_before_commit = True

    def __init__(self, client: Client, settings: Mapping[str, str]) -> None:
        self._producer = Producer(client, settings["transactional.id"])

    def begin_transaction(self) -> None:
        pass

    def send(self, record: ProducerRecord, on_delivery: OnDelivery, /) -> None:
        try:
            self._producer.send([record])
        except (BrokerError, RecordRefusedError) as error:
            on_delivery(None, error)
        else:
            on_delivery(None, None)  # its offset is not used

    def flush(self, timeout_ms: int | None = None, /) -> None:
        pass

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        self._producer.send_offsets(group.group, offsets)

    def commit_transaction(self) -> None:
        self._producer.end(commit=True)

    def abort_transaction(self) -> None:
        if self._producer.targets:
            self._producer.end(commit=False)

    def close(self, timeout_ms: int | None = None, /) -> None:
        pass


class ModelConsumerSession:
    """A `ConsumerSession` that only has its group."""

    def __init__(self, group: str) -> None:
        self.group = group

    def group_metadata(self) -> GroupMetadata:
        return self

    def close(self) -> None:
        pass


class ModelLog:
    """The part of `headrace.brokers.sessions.Broker` that a sink and its driver use."""

    is_local = creates_topics = False

    def __init__(
        self,
        connection: Connection,
        transactions: type[ModelTransaction] = ModelTransaction,
        producers: type[IdempotentProducer] = IdempotentProducer,
    ) -> None:
        self.client = Client(connection)
        self._transactions = transactions
        self._producer = producers(self.client)

    def create_topic(
        self, topic: str, /, *, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        limit = int((settings or {}).get("max.message.bytes", 1 << 20))
        self._ask(ModelBroker.create_topic, topic=topic, partitions=partitions, most_bytes=limit)

    def delete_topic(self, topic: str, /) -> None:
        self._ask(ModelBroker.delete_topic, topic=topic)

    def list_topics(self) -> list[str]:
        found: list[str] = self._ask(ModelBroker.list_topics)
        return found

    def partition_count(self, topic: str, /) -> int:
        count: int = self._ask(ModelBroker.metadata, topic=topic)[0]
        return count

    def topic_ids(self, topics: Iterable[str], /) -> dict[str, str]:
        return {topic: self._ask(ModelBroker.metadata, topic=topic)[1] for topic in topics}

    def transaction(
        self, transactional_id: str, /, *, timeout_ms: int | None = None, size: int = 0
    ) -> ModelTransaction:
        return self._transactions(self.client, transactional_id)

    def leadership(self) -> LeadershipKind:
        return LeadershipKind.GROUP

    def fence_producers(self, transactional_ids: Iterable[str], /) -> None:
        for transactional_id in transactional_ids:
            Producer(self.client, transactional_id)

    def append(self, records: Iterable[RawRecord], /) -> list[RecordMetadata]:
        return [self._producer.send(producer_record(each)) for each in records]

    def refusals(self, records: Iterable[RawRecord], /) -> list[tuple[int, RecordRefusedError]]:
        return []  # the sink must find them by trying, which takes the most requests

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        self._ask(ModelBroker.offset_commit, group=group, offsets=dict(offsets))

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, /
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        names = None if partitions is None else list(partitions)
        found: dict[TopicPartition, OffsetAndMetadata] = self._ask(
            ModelBroker.offset_fetch, group=group, partitions=names
        )
        return found

    def list_groups(self) -> list[str]:
        found: list[str] = self._ask(ModelBroker.list_groups)
        return found

    def describe_group(self, group: str, /) -> Sequence[MemberDescription]:
        return ()  # the member is dead, or was expelled

    def delete_group(self, group: str, /) -> None:
        self._ask(ModelBroker.delete_group, group=group)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], /
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        return {name: self._ask(ModelBroker.list_offsets, partition=name) for name in partitions}

    def read(
        self, partition: TopicPartition, start: int, end: int, /
    ) -> Iterator[list[ConsumerRecord]]:
        found: list[tuple[int, ProducerRecord]] = self._ask(ModelBroker.fetch, partition=partition)
        yield [
            ConsumerRecord(
                *partition, offset, record.timestamp, record.key, record.value, record.headers
            )
            for offset, record in found
            if start <= offset < end
        ]

    def open_producer(self, settings: Mapping[str, str], /) -> ModelProducerSession:
        return ModelProducerSession(self.client, settings)

    def open_consumer(
        self, group: str | None, settings: Mapping[str, str], /
    ) -> ModelConsumerSession:
        return ModelConsumerSession(group or "")

    def close(self) -> None:
        pass

    def _ask(self, method: Any, **arguments: Any) -> Any:
        return self.client.ask(method, **arguments)
