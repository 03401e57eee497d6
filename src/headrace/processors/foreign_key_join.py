"""Join two tables where the left rows name the keys of the right ones.

The two tables are partitioned differently, so each left row subscribes at the partition of its
foreign key, and answers come back to the partition of the row::

    left ── send ─► fk: subscription ─► receive ── join ───┐
                                                           ├─► pk: response ─► resolve ── result
    right ───────────────────────────── join subscribers ──┘

An answer carries the digest of the left value it was asked for. If the row has changed since, the
answer is stale and left out: another one is on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from headrace.processors.operation import NodeContext, Operation, Process
from headrace.records import Headers
from headrace.serdes.base import serde_for_topic
from headrace.serdes.slots import Fill, SerdeSlot
from headrace.serdes.subscription_serde import DIGEST_SIZE, Response, Subscription

UNSUBSCRIBE: Final = 0
"""Forget the subscription."""
UNSUBSCRIBE_AND_ANSWER: Final = 1
"""Forget the subscription, and answer that there is no right value."""
ANSWER: Final = 2
"""Subscribe, and answer with the right value, also if there is none."""
ANSWER_IF_FOUND: Final = 3
"""Subscribe, and answer only if there is a right value."""

Message: TypeAlias = tuple[Any, int]
"""A foreign key, and what its partition is to do."""


@dataclass(frozen=True, kw_only=True)
class SubscriptionSend(Operation):
    """Subscribe left rows to their foreign keys."""

    foreign_key: Callable[[Any, Any], Any]
    """Called with the key and the value of a left row."""
    is_left: bool
    """Whether every left row has a result."""
    topic: str
    """The topic of the subscriptions, without the application id."""
    key: SerdeSlot
    """The slot of the foreign keys."""
    value: SerdeSlot
    """The slot of the left values."""
    versioned: bool = False
    """Whether the left table is versioned: then only the latest value of a key counts."""

    def resolved(self, fill: Fill) -> Operation:
        return replace(self, key=fill(self.key), value=fill(self.value))

    def bind(self, node: NodeContext) -> Process:
        forward, fail, drop = node.forward, node.fail, node.drop
        versioned, partition = self.versioned, node.partition
        messages_for = self._left_messages(node) if self.is_left else self._inner_messages(node)
        digest_of = _digest_of(self.value, node, self.topic)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, old, latest = value
            if versioned and not latest:
                return drop("out-of-order")
            try:
                messages = messages_for(key, new, old)
                digest = digest_of(new) if messages and new is not None else None
            except Exception as error:
                return fail(error, key, new, timestamp, headers)
            for foreign_key, instruction in messages:
                subscription = Subscription(digest, instruction, key, partition)
                forward(foreign_key, subscription, timestamp, headers)
            return None

        return process

    def _left_messages(self, node: NodeContext) -> Callable[[Any, Any, Any], Sequence[Message]]:
        foreign_key, same = self.foreign_key, self._same(node)

        def messages(key: Any, new: Any, old: Any) -> Sequence[Message]:
            if new is None and old is None:
                return ()
            before = None if old is None else foreign_key(key, old)
            after = None if new is None else foreign_key(key, new)
            # Without a foreign key nothing is subscribed, but the answer is still needed.
            asked = (after, ANSWER)
            if before is None or (after is not None and same(before, after)):
                return (asked,)
            return (before, UNSUBSCRIBE), asked

        return messages

    def _inner_messages(self, node: NodeContext) -> Callable[[Any, Any, Any], Sequence[Message]]:
        foreign_key, same, drop = self.foreign_key, self._same(node), node.drop

        def messages(key: Any, new: Any, old: Any) -> Sequence[Message]:
            before = None if old is None else foreign_key(key, old)
            after = None if new is None else foreign_key(key, new)
            if new is not None and after is None:
                drop("null-foreign-key")
            if after is None:
                return () if before is None else ((before, UNSUBSCRIBE_AND_ANSWER),)
            if before is None or same(before, after):
                # Nothing was joined before that would have to be deleted.
                return ((after, ANSWER_IF_FOUND),)
            return (before, UNSUBSCRIBE), (after, ANSWER)

        return messages

    def _same(self, node: NodeContext) -> Callable[[Any, Any], bool]:
        topic = f"{node.application_id}-{self.topic}-fk"
        serialize = serde_for_topic(self.key.need, topic, is_key=True).serialize
        return lambda before, after: serialize(before) == serialize(after)


@dataclass(frozen=True, kw_only=True)
class SubscriptionReceive(Operation):
    """Keep the subscriptions of the foreign keys of this partition."""

    store_name: str

    stateless = False

    def bind(self, node: NodeContext) -> Process:
        store, forward = node.store(self.store_name), node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            digest, instruction, primary_key, partition = value
            if key is not None:
                if instruction in (ANSWER, ANSWER_IF_FOUND):
                    store.put(key, primary_key, digest, partition)
                else:
                    store.remove(key, primary_key)
            forward(key, value, timestamp, headers)

        return process


@dataclass(frozen=True, kw_only=True)
class SubscriptionJoin(Operation):
    """Answer a subscription with the current right value."""

    table: str
    """The node of the right table."""

    stateless = False

    def bind(self, node: NodeContext) -> Process:
        get, forward, fail = node.getter(self.table).get, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            digest, instruction, primary_key, partition = value
            try:
                stored = None if key is None else get(key)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            if instruction == UNSUBSCRIBE or (stored is None and instruction == ANSWER_IF_FOUND):
                return None
            foreign_value = None
            if stored is not None:
                timestamp = max(timestamp, stored[1])
                if instruction != UNSUBSCRIBE_AND_ANSWER:
                    foreign_value = stored[0]
            response = Response(digest, foreign_value, partition)
            return forward(primary_key, response, timestamp, headers)

        return process


@dataclass(frozen=True, kw_only=True)
class SubscribersJoin(Operation):
    """Send each change of a right value to the rows that are subscribed to its key."""

    store_name: str
    versioned: bool = False
    """Whether the right table is versioned: then only the latest value of a key counts."""

    stateless = False

    def bind(self, node: NodeContext) -> Process:
        subscribers = node.store(self.store_name).subscribers
        forward, drop, versioned = node.forward, node.drop, self.versioned

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, _, latest = value
            if versioned and not latest:
                return drop("out-of-order")
            for primary_key, digest, partition in subscribers(key):
                forward(primary_key, Response(digest, new, partition), timestamp, headers)
            return None

        return process


@dataclass(frozen=True, kw_only=True)
class ResponseResolve(Operation):
    """Join an answer with the current left value, if that is still the one that asked."""

    table: str
    """The node of the left table."""
    joiner: Callable[[Any, Any, Any], Any]
    """Called with the primary key, the left value and the right value."""
    is_left: bool
    """Whether a left row has a result without a right value."""
    topic: str
    """The topic of the subscriptions, without the application id."""
    value: SerdeSlot
    """The slot of the left values."""

    stateless = False

    def resolved(self, fill: Fill) -> Operation:
        return replace(self, value=fill(self.value))

    def bind(self, node: NodeContext) -> Process:
        forward, fail, drop = node.forward, node.fail, node.drop
        joiner, is_left = self.joiner, self.is_left
        get = node.getter(self.table).get
        digest_of = _digest_of(self.value, node, self.topic)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            digest, foreign_value, _ = value
            result = None
            try:
                stored = get(key)
                if digest != (None if stored is None else digest_of(stored[0])):
                    return drop("stale")
                if stored is not None and (is_left or foreign_value is not None):
                    result = joiner(key, stored[0], foreign_value)
            except Exception as error:
                return fail(error, key, foreign_value, timestamp, headers)
            return forward(key, result, timestamp, headers)

        return process


def _digest_of(slot: SerdeSlot, node: NodeContext, topic: str) -> Callable[[Any], bytes]:
    """Return the function that gives the digest of a left value."""
    named = f"{node.application_id}-{topic}-vh"
    serialize = serde_for_topic(slot.need, named, is_key=False).serialize
    return lambda value: blake2b(serialize(value), digest_size=DIGEST_SIZE).digest()
