"""Join two tables by key: a result for each key, changed whenever either side changes.

::

    left  ── this ──┐
                    ├── merge      this looks the right side up, other the left side
    right ── other ─┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace.processors.operation import (
    NodeContext,
    Process,
    StoredValue,
    TableOperation,
    ValueGetter,
)
from headrace.processors.table_forward import IS_LATEST, NOT_PUT, change_emitter, store_getter
from headrace.records import Headers

Join = Callable[[Any, Any, Any], Any]
"""Makes the result of a key: f(key, value of this side, value of the other side)."""


@dataclass(frozen=True, kw_only=True)
class TableJoinSide(TableOperation):
    """Join each change of one table with the current value of the other."""

    other: str
    """The node of the other table."""
    joiner: Callable[[Any, Any, Any], Any]
    """Called with the key, the left value and the right value."""
    is_left: bool
    alone: bool
    """Whether a value of this side has a result without a partner."""
    partner_alone: bool
    """Whether a value of the other side has a result without a partner."""
    versioned: bool = False
    """Whether the table that enters is versioned: then only the latest value of a key counts."""

    stateless = False

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        """Return the look-up of the joined table; only the left side is asked."""
        join, alone, partner_alone = self._join(), self.alone, self.partner_alone
        get, get_partner = parent().get, node.getter(self.other).get

        def joined(key: Any) -> StoredValue:
            value, time = get(key) or _MISSING
            if value is None and not partner_alone:
                return None
            partner, partner_time = get_partner(key) or _MISSING
            if partner is None and (value is None or not alone):
                return None
            result = join(key, value, partner)
            return None if result is None else (result, max(time, partner_time))

        return ValueGetter(joined)

    def bind(self, node: NodeContext) -> Process:
        join, alone, partner_alone = self._join(), self.alone, self.partner_alone
        sends_old, versioned = self.sends_old_values, self.versioned
        forward, fail, drop = node.forward, node.fail, node.drop
        get = node.getter(self.other).get

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, old, latest = value
            if versioned and not latest:
                return drop("out-of-order")
            try:
                stored = get(key)
                if stored is None:
                    if not alone or (new is None and old is None):
                        return None
                    partner, joins_nothing, time = None, False, timestamp
                else:
                    partner, time = stored
                    joins_nothing = partner_alone
                    if time < timestamp:
                        time = timestamp
                joined = before = None
                if new is not None or joins_nothing:
                    joined = join(key, new, partner)
                if sends_old and (old is not None or joins_nothing):
                    before = join(key, old, partner)
            except Exception as error:
                return fail(error, key, new, timestamp, headers)
            return forward(key, (joined, before, latest), time, headers)

        return process

    def _join(self) -> Join:
        joiner = self.joiner
        if self.is_left:
            return joiner
        return lambda key, value, partner: joiner(key, partner, value)


_MISSING = (None, -1)


@dataclass(frozen=True, kw_only=True)
class TableJoinMerge(TableOperation):
    """Bring the results of both sides together, and keep them if they have a store."""

    stateless = False

    def sending_old_values(
        self, parent_sends: Callable[[], bool], *, materialize: bool
    ) -> TableOperation | None:
        # Without a cache the old results come from the sides, even if there is a store.
        parent_sends()
        return replace(self, sends_old_values=True)

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        return parent() if self.store_name is None else store_getter(node, self.store_name)

    def bind(self, node: NodeContext) -> Process:
        if self.store_name is None:
            return node.forward
        store, fail = node.store(self.store_name), node.fail
        write = store.write
        emit = change_emitter(node, store, old_values=self.sends_old_values)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, old, _ = value
            try:
                written = write(key, new, timestamp, headers)
            except Exception as error:
                return fail(error, key, new, timestamp, headers)
            if written != NOT_PUT:
                emit(key, new, old, timestamp, headers, written == IS_LATEST)
            return None

        return process
