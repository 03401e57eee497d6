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
    │       └── RecordRefusedError    the broker does not take a record: too large, no key
    ├── StateStoreError               a store was used wrongly, or its content cannot be read
    │   └── SuppressBufferFullError   a `suppress` buffer reached its limit and may not emit early
    ├── QueryError                    a store cannot answer: retry, or ask elsewhere
    ├── BrokerError                   the broker or the embedded log could not serve a request
    │   ├── BrokerUnavailableError    it did not answer in time
    │   │   └── UnstableOffsetsError  a transaction that does not end holds back offsets
    │   ├── AuthorizationError        it denies this client access, or this request
    │   ├── UnknownTopicError         there is no such topic or partition
    │   ├── TopicExistsError          a topic to be created exists already
    │   ├── OffsetOutOfRangeError     records to read no longer exist
    │   ├── NoOffsetForPartitionError  a group has no offset, and none may be chosen
    │   ├── GroupNotEmptyError        a group still has members
    │   ├── CommitFailedError         the group no longer has this member
    │   ├── BufferExhaustedError      the producer's buffer stayed full
    │   └── ProducerFencedError       another producer took over the transactional id
    ├── SchemaRegistryUnavailableError  the schema registry gave no answer: no record is at fault
    ├── CheckpointError               state and progress do not fit the program
    │   └── CheckpointInUseError      another process runs the application
    ├── LeadershipLostError           another process has taken over the application
    ├── ApplicationShutdownError      the leader has shut the application down, standbys included
    ├── UnshippableError              a step cannot be sent to Spark's workers
    ├── EmptyTopicError               a test read more records than were written
    └── WakeupError                   `wakeup()` ended a blocked `poll()`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_COMMAND = re.compile(r"`(headrace (?:reset|serve|topics) [^`]+)`")
"""The commands in messages that act on a log."""


def message_of(error: BaseException) -> str:
    """Return the message of an error, also of one that cannot print it."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"  # as Python's tracebacks have it


class StreamsError(Exception):
    """The root of every error that Headrace raises.

    Args:
        problem: The error and its cause.
        remedy: The advice, given apart because it is different while another process runs the
            application.
    """

    problem = remedy = ""
    is_of_record = False
    """Whether the record at hand, or the step that has it, may be at fault: its handler decides."""
    command_flags = ""
    """The flags by which the commands in the message use the same log and the same folders."""

    def __init__(self, problem: str = "", remedy: str = "") -> None:
        self.problem, self.remedy = problem, remedy
        between = "" if not remedy or problem.endswith("\n") else " "
        super().__init__(f"{problem}{between}{remedy}")

    def __str__(self) -> str:
        text = super().__str__()
        if not self.command_flags:
            return text
        return _COMMAND.sub(lambda command: f"`{command[1]} {self.command_flags}`", text)


class TopologyError(StreamsError):
    """The program describes a topology that cannot run, or a step breaks its rules."""

    is_of_record = True


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


@dataclass(frozen=True)
class MissingSerde:
    """A serde that a step needs, and how to give it."""

    part: str
    """``key`` or ``value``."""
    needed_by: str
    """The call that needs it, ``to(…) at app.py:13``, or the name of the step."""
    lost_by: str
    """The call or step that does not state the type; it may be the one that needs it."""
    remedy: str | None = None
    """How to give the type, where that is not ``key=`` or ``value=``."""

    def __str__(self) -> str:
        lost = "their type was never given"
        if self.lost_by != self.needed_by:
            lost = f"{self.lost_by} does not state their type"
        remedy = self.remedy or f"Add `{self.part}=` to {self.lost_by}"
        needed_by = re.sub("^step", "Step", self.needed_by)
        return (
            f"{needed_by} needs a serde for its {self.part}s, but {lost}. "
            f"{remedy}, or set `default_{self.part}_serde`."
        )


class MissingSerdeError(TopologyError):
    """Steps need serdes that the program does not give; all of them at once."""

    def __init__(self, missing: Iterable[MissingSerde]) -> None:
        self.missing = list(missing)
        super().__init__(_listed(self.missing, "serdes are missing"))


class ConfigError(StreamsError):
    """Settings that cannot be used; every problem at once."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__(_listed(self.problems, "problems with the settings"))


def _listed(problems: Sequence[object], heading: str) -> str:
    if len(problems) == 1:
        return str(problems[0])
    return f"{len(problems)} {heading}:" + "".join(f"\n  - {problem}" for problem in problems)


class RecordError(StreamsError):
    """One record could not be handled.

    Args:
        message: The error, its place and the advice, as the reader sees them.
        node: The step that was working on the record.
        topic: The topic the record was read from; None in a punctuation.
        partition: Its partition, or -1.
        offset: Its offset, or -1.
        dead_letters: The `ProducerRecord`s that its handler made.
    """

    is_of_record = True

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        topic: str | None = None,
        partition: int = -1,
        offset: int = -1,
        dead_letters: tuple[Any, ...] = (),
    ) -> None:
        self.node = node
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.dead_letters = dead_letters
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


class RecordRefusedError(ProductionError):
    """The broker refuses a record; the others of its transaction were not written either.

    Args:
        record: The record, a `ProducerRecord`.
        reason: The broker's reason.
    """

    def __init__(self, record: Any, *, reason: str) -> None:
        self.record = record
        self.reason = reason
        self.taken: frozenset[int] = frozenset()
        """Without a transaction: the indexes of records that need not be written again."""
        super().__init__(
            f"A record for topic {record.topic!r}, partition {record.partition}, "
            f"was refused: {reason}",
            topic=record.topic,
            partition=-1 if record.partition is None else record.partition,
        )


class StateStoreError(StreamsError):
    """A store was used wrongly, or its content cannot be read.

    Attributes:
        is_of_record: Whether a step used the store wrongly.
    """

    def __init__(self, message: str, *, is_of_record: bool = False) -> None:
        self.is_of_record = is_of_record
        super().__init__(message)


class SuppressBufferFullError(StateStoreError):
    """A `suppress` buffer reached its limit and may not emit early."""

    def __init__(self, node: str, *, limit: str) -> None:
        self.node = node
        self.limit = limit
        super().__init__(
            f"The buffer of {node!r} exceeded its limit of {limit}. "
            f'Raise the limit, remove it, or choose `when_full="emit_early"`.',
            is_of_record=True,
        )


class QueryError(StreamsError):
    """A store cannot answer a query."""


class BrokerError(StreamsError):
    """The broker or the embedded log could not serve a request."""


class BrokerUnavailableError(BrokerError):
    """The broker, or the file of the embedded log, did not answer in time."""


class UnstableOffsetsError(BrokerUnavailableError):
    """A transaction that does not end holds back the offsets of a group."""


class AuthorizationError(BrokerError):
    """The broker denies this client access, or this request."""


class UnknownTopicError(BrokerError):
    """There is no such topic, or it has no such partition."""

    def __init__(
        self,
        topic: str,
        *,
        partition: int | None = None,
        nearest: Iterable[str] = (),
        remedy: str = "",
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.nearest = list(nearest)
        what = f"topic {topic!r}" if partition is None else f"partition {partition} in {topic!r}"
        guess = " or ".join(repr(name) for name in self.nearest)
        create = f"create {topic}"
        if partition is not None:
            create = f"grow {topic} --partitions {partition + 1}"
        if guess:
            remedy = f"Did you mean {guess}? {remedy}".rstrip()
        remedy = remedy or f"Create it with `headrace topics {create}`."
        super().__init__(f"There is no {what}. {remedy}")


class TopicExistsError(BrokerError):
    """A topic to be created exists already."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"Topic {topic!r} exists already. Use it, or delete it first.")


class OffsetOutOfRangeError(BrokerError):
    """Records to read no longer exist: retention or deletion removed them."""

    def __init__(self, topic: str, partition: int, *, offset: int, beginning: int) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.beginning = beginning
        """The first offset that still exists."""
        super().__init__(
            f"Offset {offset} of {topic!r}, partition {partition}, is gone: the partition begins "
            f"at {beginning}, so {beginning - offset} offsets were lost. "
            "Keep records longer (`retention.ms`), or resume at the beginning."
        )


class NoOffsetForPartitionError(BrokerError):
    """A group has no committed offset, and ``auto_offset_reset`` is "none"."""

    def __init__(self, topic: str, partition: int, *, group: str | None) -> None:
        self.topic = topic
        self.partition = partition
        self.group = group
        super().__init__(
            f"Group {group!r} has no offset for {topic!r}, partition {partition}, and "
            '`auto_offset_reset` is "none". Commit or seek to one, or use "earliest" or "latest".'
        )


class GroupNotEmptyError(BrokerError):
    """A consumer group still has members, so that its offsets cannot be changed from outside."""

    def __init__(self, group: str, *, member: str = "") -> None:
        self.group = group
        runs = f": {member} runs the application" if member else ""
        super().__init__(f"Group {group!r} still has members{runs}. Stop its consumers first.")


class CommitFailedError(BrokerError):
    """The group no longer has this member: its partitions belong to others."""

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(
            f"Group {group!r} no longer has this consumer, so its offsets were not committed. "
            "Poll more often than `max_poll_interval`, and commit before partitions are revoked."
        )


class BufferExhaustedError(BrokerError):
    """A producer's buffer stayed full for ``max.block.ms``, so the record was not sent."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"The producer's buffer stayed full for {seconds:g} s (`max.block.ms`), so the record "
            "was not sent. Raise `buffer.memory` or `max.block.ms`, or send more slowly."
        )


class ProducerFencedError(BrokerError):
    """Another producer with the same transactional id took over. Close this one."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        super().__init__(
            f"Another producer took over the transactional id {transactional_id!r}. "
            "Close this one; its uncommitted records were not written."
        )


class SchemaRegistryUnavailableError(StreamsError):
    """The schema registry does not answer, or denies access. No handler drops records for it."""


class CheckpointError(StreamsError):
    """The checkpoint of an application is missing, unreadable, or of another topology."""


class CheckpointInUseError(CheckpointError):
    """Another process uses the application's folder."""

    def __init__(self, directory: str, *, holder: str | None, is_start: bool = True) -> None:
        self.directory = directory
        self.holder = holder
        process = "Another process" if holder is None else f"Process {holder}"
        elsewhere = ", or give this application another `application_id` or `state_dir`"
        super().__init__(
            f"{process} uses the state in {directory!r}. Stop it first"
            f"{elsewhere if is_start else ''}."
        )


class LeadershipLostError(StreamsError):
    """Another process has taken over the application; this one must stop."""

    def __init__(self, application_id: str) -> None:
        self.application_id = application_id
        super().__init__(
            f"Another process has taken over application {application_id!r} and finishes its "
            "work, so this one stops. Start it again to stand by."
        )


class ApplicationShutdownError(StreamsError):
    """The leader has shut the application down, standbys included."""

    def __init__(self, application_id: str, *, leader: str) -> None:
        self.application_id = application_id
        super().__init__(
            f"{leader} has shut down application {application_id!r} for all processes: its "
            "uncaught exception handler answered `SHUTDOWN_APPLICATION`. Its log has the reason; "
            "remove it, and start the application again."
        )


class UnshippableError(StreamsError):
    """A step holds something that belongs to this process, so that workers cannot get it."""

    def __init__(
        self,
        node: str | None,
        *,
        origin: str | None,
        reason: str,
        remedy: str = "Make locks, files and connections inside the function or in `init`, "
        "not around it.",
    ) -> None:
        self.node = node
        where = "The application" if node is None else f"Step {node!r}"
        at = f" ({origin})" if origin else ""
        super().__init__(f"{where}{at} cannot be sent to Spark's workers: {reason}. {remedy}")


class EmptyTopicError(StreamsError):
    """A test read more records than were written to a topic."""


class WakeupError(StreamsError):
    """``wakeup()`` ended a blocked ``poll()``."""
