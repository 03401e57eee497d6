"""The types that the modules of the harness share: records, workloads, expectations.

A round creates the topics of a workload with `TOPIC_SETTINGS`, starts its topology, sends its
records in order while faults happen, waits until the group of the application has committed all of
them, lets it run for `settle_seconds` more and closes it. Then `reading` reads everything and
`checks` judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

TOPIC_SETTINGS = {"retention.ms": "-1"}
"""Records have timestamps of a fixed day, which ordinary retention would soon overtake."""

EXACTLY_ONCE, AT_LEAST_ONCE = GUARANTEES = ("exactly_once_v2", "at_least_once")
"""The guarantees of an application, as `processing.guarantee` names them."""

MAX_RECORD_BYTES = 1_600_000
"""The application of `bad_input` reads no larger records."""


class Sent(NamedTuple):
    """A record to write into an input topic."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Logged(NamedTuple):
    """A record as a reader found it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    unit: int
    """Differs between transactions: records of one share it, whatever their topics. For those of
    Kafka, `chaos.segments` finds it out."""


Log: TypeAlias = dict[str, dict[int, list[Logged]]]
"""Records by topic and partition, in the order of their offsets."""

Stores: TypeAlias = dict[str, dict[bytes, Any]]
"""The contents of stores by their names and by the keys their changelogs have."""

Offsets: TypeAlias = dict[tuple[str, int], int]
"""Committed offsets by topic and partition."""

Lane: TypeAlias = tuple[Any, ...]
"""Records whose order is decided, for example those of one topic and key."""

Lanes: TypeAlias = dict[Lane, list[tuple[Any, Any]]]
"""The results of each lane: the identity of a result, and its value."""


@dataclass(frozen=True)
class Expected:
    """The results that the oracle expects for an input log."""

    lanes: Lanes
    """Results in the order of their lane."""
    stores: Stores = field(default_factory=dict)
    """The contents of each queryable store; values are decoded."""
    possible: dict[Lane, dict[Any, Any]] = field(default_factory=dict)
    """Where timing decides which results show: all that may, each once at most, by rank."""
    dropped: dict[str, int] | None = None
    """How many input records are dropped, by reason; None if the oracle does not count them."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A topology, what it is fed and how to judge what it writes."""

    name: str
    topics: Mapping[str, int]
    """Input topics and how many partitions they have."""
    outputs: Mapping[str, int]
    """Output topics and how many partitions they have."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """Queryable stores, `key_value` or `window`, whose changelogs hold JSON."""
    topic_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of topics, besides `TOPIC_SETTINGS`."""
    has_registry: bool = False
    """Whether it needs a schema registry; `chaos.registry` has its URL."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for `KafkaStreams`, besides those of the host."""
    act: int = 0
    """Before record number n * act, wait until everything before it is committed; 0: never wait."""
    settle_seconds: float = 0.0
    """How long to let the application run after it has committed everything."""
    topology: Callable[[], Any]
    """Builds a new `headrace` topology at each call."""
    records: Callable[[int, int, int], Iterator[Sent]]
    """`records(seed, start, count)`: the records number start to start + count - 1 of a seed."""
    expected: Callable[[Log], Expected]
    """Returns the oracle's expectation for the inputs, as they were read back."""
    observed: Callable[[Log], Lanes]
    """The lanes that the outputs show."""
    traced: Callable[[Log], set[str]] | None = None
    """The ids of the input records that outputs show, where each input record shows at once."""
    shown: tuple[str, str] | None = None
    """A store and a topic that gets each of its changes, in the transaction of the changelog."""
    twins: tuple[str, str] | None = None
    """Topics that get one record each for one input record, in one transaction."""
