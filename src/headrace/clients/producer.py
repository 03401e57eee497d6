"""KafkaProducer: writes records to topics, in Kafka or in the embedded log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, Generic, TypeAlias, Unpack

from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.clients.consumer import KafkaConsumer, offsets_from
from headrace.clients.log_naming import name_log, naming_log
from headrace.clients.partitioning import PARTITIONER, StickyPartitions, partitioner_from
from headrace.clients.settings import ClientConfig, ProducerSettings, client_config
from headrace.durations import Duration, duration_ms
from headrace.errors import SerializationError, StreamsError
from headrace.records import (
    HeadersLike,
    K,
    ProducerRecord,
    RecordMetadata,
    Timestamp,
    V,
    headers_of,
    timestamp_ms,
)
from headrace.serdes.base import Serde, SerdeLike, serde_for_topic
from headrace.serdes.deduce import serde_for
from headrace.serdes.partitioner import partition_for_key

_log = logging.getLogger(__name__)

OnCompletion: TypeAlias = Callable[[RecordMetadata | None, StreamsError | None], None]
"""f(metadata, error), called once per record from the producer's own thread."""


class KafkaProducer(Generic[K, V]):
    """Writes records in the background. Threads may share it.

    Args:
        config: A mapping of Kafka's dotted names (``{"linger.ms": 5}``), or the config of an
            application, whose broker and ``producer`` settings it then has.
        key: The type, or the serde, of the keys.
        value: The type, or the serde, of the values.
        settings: Kafka's settings as keywords, which win: ``linger="5ms"``, ``acks="all"``.
            Without ``bootstrap_servers`` the embedded log is written. ``partitioner`` is a function
            ``f(topic, key, value, partitions)``, a class, or ``"module:name"`` of one of them.

    Raises:
        ConfigError: Settings that cannot be used, all of them together.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        /,
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        **settings: Unpack[ProducerSettings],
    ) -> None:
        keywords: dict[str, Any] = dict(settings)
        partitioner = keywords.pop("partitioner", None)
        if isinstance(config, Mapping) and PARTITIONER in config:
            # An object would become text among the other settings.
            config = dict(config)
            partitioner = partitioner or config.pop(PARTITIONER)
        merged, client_settings = client_config("producer", config, keywords)
        self._partitioner = partitioner_from(partitioner or client_settings.pop(PARTITIONER, None))
        self._key, self._value = serde_for(key), serde_for(value)
        self._serdes = cache(self._serdes_of)
        self._transactional_id = client_settings.get("transactional.id")
        self._sticky = StickyPartitions(
            int(client_settings.get("batch.size", 16_384)),
            int(client_settings.get("linger.ms", 0)) / 1000,
        )
        self._open = False
        self._config = merged
        self._broker = open_log(merged)
        self._session = self._broker.open_producer(client_settings)

    def __enter__(self) -> KafkaProducer[K, V]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        key: K | None,
        value: V | None,
        *,
        partition: int | None = None,
        timestamp: Timestamp | None = None,
        headers: HeadersLike = (),
        on_completion: OnCompletion | None = None,
    ) -> Future[RecordMetadata]:
        """Write a record, and return at once.

        Args:
            topic: The topic to write to.
            key: Decides the partition if nothing else does: Kafka's murmur2 hash. Without a key a
                batch goes to one partition and the next batch to another.
            value: None deletes, where the topic is a table.
            partition: The partition, if the key should not decide it.
            timestamp: Now, if left out.
            headers: Pairs of name and bytes.
            on_completion: Called when the record is written or refused.

        Returns:
            The record's partition and offset, once it is written. In a transaction on the embedded
            log they are known after the commit.

        Raises:
            SerializationError: The key or the value does not fit its serde.
            UnknownTopicError: There is no such topic, and the broker does not create it.
            BufferExhaustedError: The buffer was full for ``max_block``.
        """
        if self._transactional_id is not None and not self._open:
            msg = (
                f"The producer with the transactional id {self._transactional_id!r} is not in a "
                "transaction. Send inside `with producer.transaction():`."
            )
            raise StreamsError(msg)
        written = self._serialized(topic, key, value)
        stamp = time.time_ns() // 1_000_000 if timestamp is None else timestamp_ms(timestamp)
        sent = _Sent(self._refuse_to_wait)
        try:
            if partition is None:
                partition = self._partition(topic, key, value, written)
            record = ProducerRecord(topic, partition, stamp, *written, headers_of(headers))
            self._session.send(record, partial(self._complete, sent, on_completion))
        except StreamsError as error:
            name_log(self._config, error)
            raise
        return sent

    @naming_log
    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until everything that was sent is written or refused.

        Raises:
            BrokerUnavailableError: It took longer than ``timeout``.
        """
        self._session.flush(None if timeout is None else duration_ms(timeout, what="timeout"))

    @naming_log
    def close(self, timeout: Duration | None = None) -> None:
        """Flush, and close the connection. May be called again."""
        try:
            self._session.close(None if timeout is None else duration_ms(timeout, what="timeout"))
        finally:
            self._broker.close()

    @contextmanager
    def transaction(self) -> Iterator[KafkaProducer[K, V]]:
        """Commit the records of a ``with`` block at its end, or none if it fails.

        Raises:
            ProducerFencedError: Another producer took over the transactional id.
        """
        if self._transactional_id is None:
            msg = "This producer has no `transactional_id`, so it has no transactions. Give it one."
            raise StreamsError(msg)
        self._session.begin_transaction()
        self._open = True
        try:
            yield self
            self._session.flush()
            self._session.commit_transaction()
        except BaseException:
            # The caller needs the first error.
            with suppress(StreamsError):
                self._session.abort_transaction()
            raise
        finally:
            self._open = False

    @naming_log
    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        consumer: KafkaConsumer[Any, Any],
    ) -> None:
        """Commit the offsets of a consumer with the transaction, so that both happen or neither.

        Args:
            offsets: The next offset to read of each partition.
            consumer: The consumer that read them; it must not commit by itself.
        """
        if not self._open:
            msg = "Offsets are sent inside `with producer.transaction():`, but none is open."
            raise StreamsError(msg)
        self._session.send_offsets(offsets_from(offsets), consumer.group_metadata())

    def _serialized(
        self, topic: str, key: K | None, value: V | None
    ) -> tuple[bytes | None, bytes | None]:
        key_serde, value_serde = self._serdes(topic)
        try:
            part = "key"
            key_bytes = None if key is None else key_serde.serialize(key)
            part = "value"
            value_bytes = None if value is None else value_serde.serialize(value)
        except (TypeError, ValueError) as error:
            msg = f"The {part} of a record for topic {topic!r} does not fit its serde: {error}"
            raise SerializationError(msg, topic=topic) from error
        return key_bytes, value_bytes

    def _serdes_of(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        return (
            serde_for_topic(self._key, topic, is_key=True),
            serde_for_topic(self._value, topic, is_key=False),
        )

    def _partition(
        self, topic: str, key: K | None, value: V | None, written: tuple[bytes | None, bytes | None]
    ) -> int:
        count = self._session.partition_count(topic)
        if self._partitioner is not None:
            chosen = self._partitioner(topic, key, value, count)
            if chosen is not None:
                return chosen
        key_bytes, value_bytes = written
        if key_bytes is not None:
            return partition_for_key(key_bytes, count)
        return self._sticky.next(topic, count, len(value_bytes or b""))

    def _complete(
        self,
        sent: _Sent,
        on_completion: OnCompletion | None,
        metadata: RecordMetadata | None,
        error: StreamsError | None,
    ) -> None:
        if error is not None:
            name_log(self._config, error)
        if on_completion is not None:
            try:
                on_completion(metadata, error)
            except Exception:
                _log.exception("The function `on_completion` of a record failed.")
        if metadata is not None:
            sent.set_result(metadata)
        else:
            sent.set_exception(error)

    def _refuse_to_wait(self) -> None:
        if self._open and not self._session.delivers_before_commit:
            msg = (
                "The embedded log writes a transaction when it commits, so a record has no offset "
                "inside it. Ask after the `with` block."
            )
            raise StreamsError(msg)


class _Sent(Future[RecordMetadata]):
    """The future of a record. It raises if waiting inside a transaction would never end."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check = check
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record went, waiting for at most ``timeout`` seconds."""
        if not self.done():
            self._check()
        return super().result(timeout)
