"""The nodes of a topology: plain data that refuses to be wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from headrace.durations import duration_ms
from headrace.errors import TopologyError
from headrace.processors.operation import Operation
from headrace.records import RecordContext
from headrace.serdes.slots import SerdeSlot
from headrace.timestamps import FailOnInvalidTimestamp, TimestampExtractor

Partitioner: TypeAlias = Callable[[str, Any, Any, int], int | Iterable[int] | None]
"""Chooses partitions: f(topic, key, value, partitions); None leaves it to the key's hash."""

TopicChooser: TypeAlias = Callable[[Any, Any, RecordContext], str]
"""Chooses the topic of a record: f(key, value, context)."""

AutoOffsetReset: TypeAlias = str | int
"""Where a source starts: ``"earliest"``, ``"latest"``, ``"none"``, or milliseconds back."""


def checked_offset_reset(reset: object, source: str) -> AutoOffsetReset | None:
    """Return where a source starts, from what the user gave as ``auto_offset_reset``.

    Raises:
        TopologyError: It is neither a word that Kafka knows nor a length of time.
    """
    if reset is None or (isinstance(reset, str) and reset in ("earliest", "latest", "none")):
        return reset
    if isinstance(reset, timedelta) and reset >= timedelta(0):
        return duration_ms(reset, what="auto_offset_reset")
    msg = (
        f"`auto_offset_reset` of source {source!r} is {reset!r}. "
        'Use "earliest", "latest", "none", or a timedelta of zero or more.'
    )
    raise TopologyError(msg)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A step of a topology."""

    name: str
    parents: tuple[str, ...] = ()
    priority: int = field(default=0, compare=False)
    """The order of building: of two nodes whose parents are built, the lower comes first."""
    after: tuple[str, ...] = ()
    """Nodes that are built earlier, although they are no parents: Kafka builds a join at once."""
    origin: str | None = field(default=None, compare=False)
    """The line of the program that made the node: ``app.py:31``."""
    call: str | None = field(default=None, compare=False)
    """The method that the program called there: ``join``."""

    @property
    def bound_operation(self) -> Operation | None:
        """The operation that a task binds to the node; None: it has none."""
        return None

    @property
    def used_stores(self) -> tuple[str, ...]:
        """The stores that the node may use."""
        return ()

    @property
    def timed_stores(self) -> tuple[str, ...]:
        """Those of its stores whose changes have the timestamp of the record at this node."""
        return ()

    @property
    def keeps_state(self) -> bool:
        """Return whether the node needs stores, saved times or schedules."""
        return False

    @property
    def may_schedule(self) -> bool:
        """Return whether the node may schedule punctuations."""
        return False

    @property
    def reads_topic_as_table(self) -> bool:
        """Return whether the node makes a table of the topics of its parent source."""
        return False

    @property
    def global_topic(self) -> str | None:
        """The topic that every task reads as a whole at this node."""
        return None

    @property
    def output_topic(self) -> str | None:
        """The topic that the node writes, if its name is known and not internal."""
        return None

    @property
    def repartition_topic(self) -> str | None:
        """The internal topic that the node writes, without the application id."""
        return None


@dataclass(frozen=True, kw_only=True)
class SourceNode(Node):
    """Reads topics and decodes their records."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key: SerdeSlot
    value: SerdeSlot
    timestamp_extractor: TimestampExtractor | None = None
    auto_offset_reset: AutoOffsetReset | None = None
    shared: bool = False
    """Whether other sources of the same topics are the same source: those of `stream` are."""
    internal: bool = False
    """Whether the topics are internal, named without the application id."""

    def __post_init__(self) -> None:
        if not self.topics and self.pattern is None:
            msg = f"Source {self.name!r} has no topic. Give it at least one, or a pattern."
            raise TopologyError(msg)

    @property
    def own_extractor(self) -> TimestampExtractor | None:
        """The extractor of the node; None: that of the application."""
        return FailOnInvalidTimestamp() if self.internal else self.timestamp_extractor

    @property
    def subscription(self) -> frozenset[str] | tuple[str, int]:
        """The topics or the pattern that the source reads, as a value to compare."""
        if self.pattern is not None:
            return self.pattern.pattern, self.pattern.flags
        return frozenset(self.topics)


@dataclass(frozen=True, kw_only=True)
class ProcessorNode(Node):
    """Does something with each record."""

    operation: Operation
    stores: tuple[str, ...] = ()
    """The stores the operation may use, in the order of connecting."""
    changes_key: bool = False
    """Whether keys may differ downstream, so that grouping there must repartition."""
    changes_value: bool = False
    """Whether values may differ downstream, so that a repartition cannot move above this node."""
    merges: bool = False
    """Whether several streams run together here."""
    keeps_null_keys: bool = False
    """Whether records without a key matter here, so that a repartition above must keep them."""
    versioned: bool | None = None
    """Whether the table that leaves is versioned; None: as the one that enters."""
    grace_ms: int | None = None
    """How long after its end a window of this node takes records; None outside windows."""

    def __post_init__(self) -> None:
        if not self.parents:
            msg = f"Processor {self.name!r} has no parent. Connect it to a source or a processor."
            raise TopologyError(msg)

    @property
    def bound_operation(self) -> Operation:
        return self.operation

    @property
    def used_stores(self) -> tuple[str, ...]:
        return self.stores

    @property
    def timed_stores(self) -> tuple[str, ...]:
        return self.stores

    @property
    def keeps_state(self) -> bool:
        return bool(self.stores) or not self.operation.stateless

    @property
    def may_schedule(self) -> bool:
        return self.operation.may_schedule

    @property
    def reads_topic_as_table(self) -> bool:
        return self.operation.reads_topic_as_table


@dataclass(frozen=True, kw_only=True)
class SinkNode(Node):
    """Encodes records and writes them to a topic."""

    topic: str | TopicChooser
    key: SerdeSlot
    value: SerdeSlot
    partitioner: Partitioner | None = None
    internal: bool = False
    """Whether the topic is internal, named without the application id."""

    def __post_init__(self) -> None:
        if not self.parents:
            msg = f"Sink {self.name!r} has no parent. Connect it to a source or a processor."
            raise TopologyError(msg)
        assert isinstance(self.topic, str) or not self.internal, "not chosen per record"

    @property
    def output_topic(self) -> str | None:
        return self.topic if isinstance(self.topic, str) and not self.internal else None

    @property
    def repartition_topic(self) -> str | None:
        return self.topic if isinstance(self.topic, str) and self.internal else None


@dataclass(frozen=True, kw_only=True)
class RepartitionNode(Node):
    """Moves records to the partition of their key; lowered to a filter, a sink and a source."""

    source: str
    """The name of the source, which is where its children read."""
    topic: str
    """The name of the topic between, without the application id."""
    sink: str
    filter: str | None
    """The node that leaves out records without a key; None writes them all."""
    key: SerdeSlot
    value: SerdeSlot
    partitions: int | None = None
    partitioner: Partitioner | None = None
    mergeable: bool = False
    """Whether `merge.repartition.topics` may replace it."""
    generated_name: bool = field(default=False, compare=False)
    """Whether the topic's name came from the counter of the DSL."""


@dataclass(frozen=True, kw_only=True)
class GlobalStoreNode(Node):
    """Keeps a store of a whole topic on every instance: a source, a processor, a store."""

    topic: str
    processor: str
    """The name of the processor that maintains the store."""
    operation: Operation
    store: str
    key: SerdeSlot
    value: SerdeSlot
    timestamp_extractor: TimestampExtractor | None = None

    @property
    def own_extractor(self) -> TimestampExtractor | None:
        """The extractor of the node; None: that of the application."""
        return self.timestamp_extractor

    @property
    def bound_operation(self) -> Operation:
        return self.operation

    @property
    def used_stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def global_topic(self) -> str:
        return self.topic
