"""The seam between operations and the engine that runs them.

An operation is plain data: the user's arguments. `bind` turns it, once per task, into a function
that handles one record. The engine composes those functions, so no record walks the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeAlias

from headrace.processors.api import CommonContext
from headrace.records import ConsumerRecord, Headers
from headrace.serdes.slots import Fill

Process: TypeAlias = Callable[[Any, Any, int, Headers], None]
"""Handles one record: key, value, timestamp, headers."""

Change: TypeAlias = tuple[Any, Any, bool]
"""The value between table operations: new value, old value, whether it is the latest.

The old value is None unless an operation downstream asked for old values. The last is False for an
out-of-order update of a versioned table.
"""

StoredValue: TypeAlias = tuple[Any, int] | None
"""The result of a look-up: a value and its timestamp, or None."""


@dataclass(frozen=True)
class ValueGetter:
    """Looks values of a table up."""

    get: Callable[[Any], StoredValue]
    """The current value of a key."""
    as_of: Callable[[Any, int], StoredValue] | None = None
    """The value of a key at a time; None if the table is not versioned."""

    def mapped(self, value_of: Callable[[Any, StoredValue], StoredValue]) -> ValueGetter:
        """Return the look-up of a table computed from this one, entry by entry."""
        get, as_of = self.get, self.as_of

        def mapped_get(key: Any) -> StoredValue:
            return value_of(key, get(key))

        if as_of is None:
            return ValueGetter(mapped_get)

        def mapped_as_of(key: Any, timestamp: int) -> StoredValue:
            return value_of(key, as_of(key, timestamp))

        return ValueGetter(mapped_get, mapped_as_of)


def check_pair(returned: object) -> None:
    """Check that a function returned a pair; call it for results that are not plain pairs.

    Raises:
        TypeError: The result is no tuple of two.
    """
    if not isinstance(returned, tuple):
        name = "None" if returned is None else f"a {type(returned).__name__}"
    elif len(returned) != 2:
        name = f"a tuple of {len(returned)}"
    else:
        return
    msg = f"the function returned {name}, not a pair: return a tuple `(key, value)`"
    raise TypeError(msg)


class NodeContext(CommonContext, Protocol):
    """The interface of the engine to an operation that it binds to a node of a task."""

    name: str
    """The name of the node."""
    forward: Process
    """Hands a record to every child."""
    times: MutableMapping[str, int]
    """The times that the operation saves with the task state at each commit."""

    @property
    def record(self) -> ConsumerRecord | None:
        """The input record being processed; replaced while a record that waited is forwarded."""
        ...

    @record.setter
    def record(self, record: ConsumerRecord | None, /) -> None: ...

    @property
    def partition(self) -> int:
        """The partition the task works on."""
        ...

    def children(self) -> dict[str, Process]:
        """Return the children by name, in order."""
        ...

    def fail(
        self, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers
    ) -> None:
        """Ask the processing handler about a record that user code could not handle.

        Returns if the handler skips the record; raises if the application must stop.
        """
        ...

    def drop(self, reason: str) -> None:
        """Count the current record as dropped by this node."""
        ...

    def count(self, event: str, times: int) -> None:
        """Count an event of this node."""
        ...

    def store(self, name: str) -> Any:
        """Return a store of the task as operations see it."""
        ...

    def getter(self, table: str) -> ValueGetter:
        """Return the function that looks up the current value of a table node."""
        ...

    def on_start(self, action: Callable[[], None]) -> None:
        """Call ``action`` once every node of the task is bound, parents before children."""
        ...

    def on_commit(self, action: Callable[[], None]) -> None:
        """Call ``action`` at each commit, after the caches are flushed; parents come first."""
        ...

    def on_close(self, action: Callable[[], None]) -> None:
        """Call ``action`` when the task closes; parents come first."""
        ...

    def processor_context(self) -> Any:
        """Return what a user's processor at this node is initialised with."""
        ...

    def transformer_context(self) -> Any:
        """Return what a user's transformer is initialised with: it cannot forward."""
        ...


class Operation(ABC):
    """The operation of one node on one record."""

    stateless: ClassVar[bool] = True
    """Whether it needs neither stores nor saved times nor schedules."""
    may_schedule: ClassVar[bool] = False
    """Whether it may schedule punctuations."""
    looks_up_global_stores: ClassVar[bool] = False
    """Whether it may read global stores."""
    reads_topic_as_table: ClassVar[bool] = False
    """Whether it makes a table of the topics of its parent source."""

    @abstractmethod
    def bind(self, node: NodeContext) -> Process:
        """Return the function that handles one record at ``node``."""

    def resolved(self, fill: Fill) -> Operation:
        """Return this operation with its slots filled.

        Only for operations that encode by themselves; most leave that to their stores.
        """
        return self

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        """Return the look-up of the table that this operation makes, for the node that asks.

        ``parent()`` returns the look-up of the table that this one is computed from.
        """
        msg = f"{type(self).__name__} makes no table"
        raise NotImplementedError(msg)


@dataclass(frozen=True, kw_only=True)
class TableOperation(Operation):
    """An operation whose output is a table: others may look up its values and ask for old ones."""

    store_name: str | None = None
    """The store that holds the table, or None if it is computed from its parent."""
    sends_old_values: bool = False

    def sending_old_values(
        self, parent_sends: Callable[[], bool], *, materialize: bool
    ) -> TableOperation | None:
        """Return this operation sending old values too, or None if it cannot.

        ``parent_sends()`` asks the parents to send old values, and returns whether they do. With
        ``materialize`` a table may get a store for this.
        """
        if self.store_name is not None or parent_sends():
            return replace(self, sends_old_values=True)
        return None

    def materialized(self) -> TableOperation:
        """Return this operation ready for look-ups; source tables get their store here."""
        return self

    def stores_read(self, own: Iterable[str], parents: Iterable[str]) -> Iterable[str]:
        """Return the stores that a look-up reads, its node's and its parents', in Kafka's order."""
        return *parents, *own
