"""Every error Headrace raises, as one tree.

::

    StreamsError                      something about a stream application went wrong
    ├── TopologyError                 the program is wrong: fix it; raised while building
    │   ├── UnknownStoreError         a processor asked for a store it is not connected to
    │   └── MissingSerdeError         a step needs a serde that nothing says
    ├── ConfigError                   the settings are wrong: all problems, listed together
    ├── RecordError                   one record could not be handled: handlers decide
    │   ├── DeserializationError      bytes of a topic do not fit the serde
    │   ├── SerializationError        a key or value does not fit the serde of a sink or store
    │   ├── InvalidTimestampError     a record has no usable timestamp
    │   ├── ProcessingError           user code raised while it handled a record
    │   └── ProductionError           an output record was refused
    ├── StateStoreError               a store was used wrongly, or its content cannot be read
    │   └── SuppressBufferFullError   a `suppress` buffer reached its limit and may not emit early
    ├── QueryError                    a store cannot answer: retry, or ask elsewhere
    ├── EmptyTopicError               a test read more records than were written
    └── WakeupError                   `wakeup()` ended a blocked `poll()`
"""

from __future__ import annotations

from collections.abc import Iterable


class StreamsError(Exception):
    """The root of every error that Headrace raises."""


class TopologyError(StreamsError):
    """The program describes a topology that cannot run."""


class UnknownStoreError(TopologyError):
    """A processor asked for a store it is not connected to."""

    def __init__(self, store: str, *, node: str, connected: Iterable[str]) -> None:
        self.store = store
        self.node = node
        self.connected = sorted(connected)
        super().__init__(
            f"Processor {node!r} asked for store {store!r}, "
            f"but it is connected to {self.connected or 'no store'}. "
            f"Add {store!r} to its `stores=`."
        )


class MissingSerdeError(TopologyError):
    """A step needs the serde of a key or value, and nothing says which."""

    def __init__(
        self, part: str, *, needed_by: str, lost_by: str | None, remedy: str | None = None
    ) -> None:
        self.part = part
        self.needed_by = needed_by
        self.lost_by = lost_by
        where = "was never given" if lost_by is None else f"was lost at {lost_by!r}"
        on = needed_by if lost_by is None else lost_by
        self.remedy = remedy or f"Add `{part}=` to {on!r}"
        super().__init__(
            f"Step {needed_by!r} needs a serde for its {part}s, but the type {where}. "
            f"{self.remedy}, or set `default_{part}_serde`."
        )


class ConfigError(StreamsError):
    """Settings that cannot be used; every problem at once."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        if len(self.problems) == 1:
            text = self.problems[0]
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            text = f"{len(self.problems)} problems with the settings:{lines}"
        super().__init__(text)


class RecordError(StreamsError):
    """One record could not be handled. Knows where it was.

    Args:
        message: What happened, where and what to do, as the reader sees it.
        node: The step that was working on the record.
        topic: The topic the record was read from; None in a punctuation.
        partition: Its partition, or -1.
        offset: Its offset, or -1.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        topic: str | None = None,
        partition: int = -1,
        offset: int = -1,
    ) -> None:
        self.node = node
        self.topic = topic
        self.partition = partition
        self.offset = offset
        super().__init__(message)


class DeserializationError(RecordError):
    """The bytes of a key or value do not fit the serde."""


class SerializationError(RecordError):
    """A key or value does not fit the serde that must write it."""


class InvalidTimestampError(RecordError):
    """A record has no usable timestamp."""


class ProcessingError(RecordError):
    """User code raised while it handled a record or a punctuation."""


class ProductionError(RecordError):
    """An output record was refused."""


class StateStoreError(StreamsError):
    """A store was used wrongly, or what it holds cannot be read."""


class SuppressBufferFullError(StateStoreError):
    """A `suppress` buffer reached its limit and may not emit early."""

    def __init__(self, node: str, *, limit: str) -> None:
        self.node = node
        self.limit = limit
        super().__init__(
            f"The buffer of {node!r} exceeded its limit of {limit}. "
            f'Raise the limit, remove it, or choose `when_full="emit_early"`.'
        )


class QueryError(StreamsError):
    """A store cannot answer a query."""


class EmptyTopicError(StreamsError):
    """A test read more records than were written to a topic."""


class WakeupError(StreamsError):
    """``wakeup()`` ended a blocked ``poll()``."""
