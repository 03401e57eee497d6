"""The topics of a test: what is piped in, and what came out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic

from headrace.durations import Duration, duration_ms
from headrace.errors import EmptyTopicError
from headrace.records import (
    NO_HEADERS,
    HeadersLike,
    K,
    ProducerRecord,
    Record,
    Timestamp,
    V,
    headers_of,
    timestamp_ms,
)
from headrace.serdes.base import Serde

if TYPE_CHECKING:
    from headrace.testing.driver import TopologyTestDriver


class TestInputTopic(Generic[K, V]):
    """Pipes records into a topic. Each is processed to the end before the call returns."""

    __test__ = False

    def __init__(
        self,
        driver: TopologyTestDriver,
        topic: str,
        key: Serde[K],
        value: Serde[V],
        *,
        start: int,
        advance: int,
    ) -> None:
        self.topic = topic
        self._driver = driver
        self._key = key
        self._value = value
        self._time = start
        self._advance = advance

    def pipe_input(
        self,
        key: K | None,
        value: V | None,
        *,
        timestamp: Timestamp | None = None,
        headers: HeadersLike = NO_HEADERS,
    ) -> None:
        """Pipe one record; without a timestamp it gets the topic's time, which then advances."""
        if timestamp is None:
            time = self._time
            self._time += self._advance
        else:
            time = timestamp_ms(timestamp)
        self._pipe(key, value, time, headers)

    def pipe_value_list(
        self,
        values: Iterable[V | None],
        *,
        start: Timestamp | None = None,
        advance: Duration | None = None,
    ) -> None:
        """Pipe values without keys; times are those of `pipe_key_value_list`."""
        self.pipe_key_value_list(((None, value) for value in values), start=start, advance=advance)

    def pipe_key_value_list(
        self,
        pairs: Iterable[tuple[K | None, V | None]],
        *,
        start: Timestamp | None = None,
        advance: Duration | None = None,
    ) -> None:
        """Pipe pairs, the first at ``start`` or the topic's time, each next one ``advance`` later.

        With neither, they get the topic's time as single records do.
        """
        if start is None and advance is None:
            for key, value in pairs:
                self.pipe_input(key, value)
            return
        time = self._time if start is None else timestamp_ms(start)
        step = 0 if advance is None else duration_ms(advance, what="advance")
        for key, value in pairs:
            self._pipe(key, value, time, NO_HEADERS)
            time += step

    def pipe_record_list(self, records: Iterable[Record[K, V]]) -> None:
        """Pipe records as they are."""
        for record in records:
            self._pipe(record.key, record.value, record.timestamp, record.headers)

    def advance_time(self, duration: Duration) -> None:
        """Advance the topic's time.

        Raises:
            ValueError: The duration is negative.
        """
        step = duration_ms(duration, what="duration")
        if step < 0:
            msg = f"The time of topic {self.topic!r} cannot go back by {-step} ms."
            raise ValueError(msg)
        self._time += step

    def _pipe(self, key: Any, value: Any, timestamp: int, headers: HeadersLike) -> None:
        self._driver.pipe_raw(
            self.topic,
            None if key is None else self._key.serialize(key),
            None if value is None else self._value.serialize(value),
            timestamp,
            headers_of(headers),
        )

    def __repr__(self) -> str:
        return f"<TestInputTopic {self.topic!r}>"


class TestOutputTopic(Generic[K, V]):
    """Reads what was written to a topic, oldest first; what was read is gone."""

    __test__ = False

    def __init__(
        self, topic: str, queue: deque[ProducerRecord], key: Serde[K], value: Serde[V]
    ) -> None:
        self.topic = topic
        self._queue = queue
        self._key = key
        self._value = value

    def read_record(self) -> Record[K, V]:
        """Return the next record.

        Raises:
            EmptyTopicError: There is none.
        """
        if not self._queue:
            msg = f"Topic {self.topic!r} holds no more records. Check `is_empty()` before reading."
            raise EmptyTopicError(msg)
        raw = self._queue.popleft()
        # A missing key or value is None whatever the types say: tests read what they wrote.
        key: Any = None if raw.key is None else self._key.deserialize(raw.key)
        value: Any = None if raw.value is None else self._value.deserialize(raw.value)
        return Record(key, value, raw.timestamp, raw.headers)

    def read_value(self) -> V:
        """Return the value of the next record."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """Return key and value of the next record."""
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[Record[K, V]]:
        """Return all records that are left."""
        return [self.read_record() for _ in range(len(self._queue))]

    def read_values_to_list(self) -> list[V]:
        """Return the values of all records that are left."""
        return [record.value for record in self.read_records_to_list()]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Return keys and values of all records that are left."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Return the last value of each key of the records that are left.

        Raises:
            ValueError: A record has no key.
        """
        pairs = self.read_key_values_to_list()
        if any(key is None for key, _ in pairs):
            msg = f"A record of topic {self.topic!r} has no key, so it does not fit in a map."
            raise ValueError(msg)
        return dict(pairs)

    def is_empty(self) -> bool:
        """Return whether all records were read."""
        return not self._queue

    @property
    def queue_size(self) -> int:
        """Return how many records are left."""
        return len(self._queue)

    def __repr__(self) -> str:
        return f"<TestOutputTopic {self.topic!r} with {len(self._queue)} records>"
