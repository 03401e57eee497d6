"""The messages between instances: reads of shards that the answering instance itself has.

A `PeerTransport` sends them, as MessagePack. An instance never forwards one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from headrace.errors import QueryError
from headrace.queries.members import MemberStatus
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Operation, Row
from headrace.runtime.snapshots import SnapshotRecord

Outcome: TypeAlias = Literal["rows", "behind", "gone", "not_ready"]
"""The result of the read of a shard.

``rows``: here they are. ``behind``: the copy does not show the snapshot yet. ``gone``: the copy is
past the snapshot, or of another history. ``not_ready``: it has no copy that may answer.
"""


class ShardRead(msgspec.Struct, frozen=True, array_like=True):
    """A read of one partition of a store."""

    store: str
    partition: int
    operation: Operation
    after: bytes | None = None
    """The position behind which the rows begin; None: at the beginning."""
    limit: int = 1_000
    """How many rows the answer has at most."""


class LocalRead(msgspec.Struct, frozen=True, kw_only=True):
    """Reads of shards, all of one snapshot."""

    reads: tuple[ShardRead, ...] = ()
    at: str | None = None
    """The token of the snapshot; None: the newest that the copy has of all these shards."""
    minimum: str | None = None
    """With ``at`` None: the token of the oldest snapshot that may answer."""
    wait_ms: int = 0
    """How long the answer may wait for the snapshot."""
    wants_record: bool = False
    """Whether the answer has the record of the snapshot."""
    cursor: str | None = None
    """A cursor is open: the snapshot stays readable for 60 s."""
    closes_cursor: bool = False
    """Whether nothing more is read with the cursor."""


class ShardAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The rows of a shard, or the reason why there are none."""

    outcome: Outcome
    rows: list[Row] = []
    is_complete: bool = True
    """Whether no rows follow."""


class LocalProblem(msgspec.Struct, frozen=True, array_like=True):
    """A refusal that would be the same on every copy."""

    code: str
    detail: str

    def to_error(self) -> QueryProblemError:
        """Return the error that it is."""
        known = ProblemCode.__members__.get(self.code, ProblemCode.INTERNAL)
        return QueryProblemError(known, self.detail)


class LocalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `LocalRead`. All its rows are of one snapshot."""

    token: str | None = None
    """The snapshot; None: the copy does not have it."""
    record: SnapshotRecord | None = None
    shards: list[ShardAnswer] = []
    """One for each read, in their order."""
    problem: LocalProblem | None = None
    status: MemberStatus | None = None
    """The report of the instance about its copy; None: the asker knows it."""


class LocalChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for the next snapshot of some shards behind a token, and what it has changed."""

    store: str
    partitions: tuple[int, ...]
    after: str
    """The token behind which the snapshot comes."""
    at: str | None = None
    """The token of the snapshot itself, to read on in it. ``after`` does not count then."""
    positions: tuple[tuple[int, bytes, bool], ...] = ()
    """By partition the position of the first change, and whether it is included. Without one, the
    changes of a partition begin at the first."""
    key: bytes | None = None
    prefix: bytes | None = None
    limit: int = 1_000
    """How many changes of each partition the answer has at most."""
    wait_ms: int = 0
    """How long the answer may wait for the snapshot."""


class ChangedRow(NamedTuple):
    """An entry that a snapshot has changed."""

    key: bytes
    value: bytes | None
    """None: the entry was deleted."""
    timestamp: int | None
    start: int | None
    end: int | None
    position: bytes
    """Its position in the order of all changes of the snapshot, over all partitions."""


class ShardChanges(msgspec.Struct, frozen=True, array_like=True):
    """The changes of a partition, in their order."""

    rows: list[ChangedRow] = []
    is_complete: bool = True
    """Whether no changes of the same snapshot follow."""


class ChangesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `LocalChanges`."""

    outcome: Literal["changes", "none", "gap", "not_ready"]
    """``none``: there is no newer snapshot yet. ``gap``: the changes behind the token are not
    known here."""
    token: str | None = None
    shards: list[ShardChanges] = []
    """One for each partition, in their order."""
    problem: LocalProblem | None = None
    status: MemberStatus | None = None


class MessagePack:
    """Encodes and decodes the messages between instances."""

    encode = msgspec.msgpack.Encoder().encode
    decode_read = msgspec.msgpack.Decoder(LocalRead).decode
    decode_answer = msgspec.msgpack.Decoder(LocalAnswer).decode
    decode_changes = msgspec.msgpack.Decoder(LocalChanges).decode
    decode_changes_answer = msgspec.msgpack.Decoder(ChangesAnswer).decode


class PeerUnreachableError(QueryError):
    """An instance did not answer: its process is gone, or the network."""


class PeerTransport(Protocol):
    """Asks one instance. Each method raises `PeerUnreachableError` if it does not answer."""

    async def read(self, member: str, request: LocalRead, /) -> LocalAnswer:
        """Return what an instance has of its shards."""
        ...

    async def changes(self, member: str, request: LocalChanges, /) -> ChangesAnswer:
        """Return what the next snapshot of an instance has changed."""
        ...

    async def status(self, member: str, /) -> MemberStatus:
        """Return what an instance says about its copy."""
        ...
