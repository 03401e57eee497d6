"""Adds a foreign-key join of two tables: subscriptions, responses, and the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.dsl.functions import with_key
from headrace.dsl.handles import add_table, slot_after
from headrace.dsl.options import materialized_of
from headrace.dsl.table_joins import TableJoinOptions
from headrace.processors.foreign_key_join import (
    ResponseResolve,
    SubscribersJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from headrace.processors.operation import Operation
from headrace.processors.table_source import TableSource
from headrace.serdes.deduce import return_serde
from headrace.serdes.subscription_serde import ResponseSerde, SubscriptionSerde
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import Partitioner, ProcessorNode, RepartitionNode

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable

_PREFIX = "KTABLE-FK-JOIN-"
_REGISTRATION = f"{_PREFIX}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = f"{_PREFIX}SUBSCRIPTION-PROCESSOR-"
_OUTPUT = f"{_PREFIX}OUTPUT-"
_TOPIC_SUFFIX = "-topic"


@dataclass(frozen=True)
class _Names:
    """The names of the nodes, topics and store, in the order of Kafka's counter."""

    registration_topic: str
    send: str
    registration_sink: str
    registration_source: str
    store: str
    receive: str
    join: str
    subscribers_join: str
    response_topic: str
    response_sink: str
    response_source: str
    resolve: str
    result: str


def joined_by_foreign_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    joiner: Callable[..., Any],
    options: TableJoinOptions,
) -> KTable[Any, Any]:
    """Add a foreign-key join of two tables and return its table."""
    graph = left.graph
    graph.send_old_values(right.node, materialize=True)
    graph.send_old_values(left.node, materialize=True)
    names = _names(left, options.name)
    _add_subscriptions(left, right, options, names)
    _add_right_side(right, names)
    _add_responses(left, right, options, names)
    _add_resolver(left, joiner, options, names)
    return _result(left, joiner, options, names)


def _names(left: KTable[Any, Any], step: str | None) -> _Names:
    def name(prefix: str, suffix: str) -> str:
        return left.graph.suffixed(prefix, step, suffix)

    return _Names(
        registration_topic=name(_REGISTRATION, "-subscription-registration") + _TOPIC_SUFFIX,
        send=name(_REGISTRATION, "-subscription-registration-processor"),
        registration_sink=name("KTABLE-SINK-", "-subscription-registration-sink"),
        registration_source=name("KTABLE-SOURCE-", "-subscription-registration-source"),
        store=name(f"{_PREFIX}SUBSCRIPTION-STATE-STORE-", "-subscription-store"),
        receive=name(_PROCESSOR, "-subscription-receive"),
        join=name(_PROCESSOR, "-subscription-join-foreign"),
        subscribers_join=name(_PROCESSOR, "-foreign-join-subscription"),
        response_topic=name(f"{_PREFIX}SUBSCRIPTION-RESPONSE-", "-subscription-response")
        + _TOPIC_SUFFIX,
        response_sink=name("KTABLE-SINK-", "-subscription-response-sink"),
        response_source=name("KTABLE-SOURCE-", "-subscription-response-source"),
        resolve=name(
            f"{_PREFIX}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "-subscription-response-resolver"
        ),
        result=name(_OUTPUT, "-result"),
    )


def _add_subscriptions(
    left: KTable[Any, Any], right: KTable[Any, Any], options: TableJoinOptions, names: _Names
) -> None:
    """Add the nodes that send a subscription of each left row to its foreign key's partition."""
    graph = left.graph
    assert options.foreign_key is not None, "this is a join by foreign key"
    send = SubscriptionSend(
        foreign_key=with_key(options.foreign_key, 1, step=names.result),
        is_left=options.kind == "left_join",
        topic=names.registration_topic,
        key=right.key_slot,
        value=left.value_slot,
    )
    graph.add(ProcessorNode(name=names.send, parents=(left.node,), operation=send))
    graph.add(
        RepartitionNode(
            name=names.registration_source,
            source=names.registration_source,
            parents=(names.send,),
            topic=names.registration_topic,
            sink=names.registration_sink,
            filter=None,
            key=right.key_slot,
            value=left.key_slot.wrapped(SubscriptionSerde),
            partitioner=_one_partition(options.other_partitioner, "other_partitioner"),
        )
    )
    graph.copartition(right.sources | {names.registration_source})
    graph.add_store(
        StoreBuilder(name=names.store, kind="subscription", key=right.key_slot, value=left.key_slot)
    )


def _add_right_side(right: KTable[Any, Any], names: _Names) -> None:
    """Add the nodes that store the subscriptions and respond to them."""
    receive = SubscriptionReceive(store_name=names.store)
    join = SubscriptionJoin(table=right.node)
    subscribers_join = SubscribersJoin(store_name=names.store)
    steps: tuple[tuple[str, str, Operation, tuple[str, ...]], ...] = (
        (names.receive, names.registration_source, receive, (names.store,)),
        (names.join, names.receive, join, right.graph.look_up(right.node)),
        (names.subscribers_join, right.node, subscribers_join, (names.store,)),
    )
    for name, parent, operation, stores in steps:
        right.graph.add(
            ProcessorNode(name=name, parents=(parent,), operation=operation, stores=stores)
        )


def _add_responses(
    left: KTable[Any, Any], right: KTable[Any, Any], options: TableJoinOptions, names: _Names
) -> None:
    """Add the repartition that brings the responses to the partition of the left row."""
    graph = left.graph
    graph.add(
        RepartitionNode(
            name=names.response_source,
            source=names.response_source,
            parents=(names.join, names.subscribers_join),
            topic=names.response_topic,
            sink=names.response_sink,
            filter=None,
            key=left.key_slot,
            value=right.value_slot.wrapped(ResponseSerde),
            partitioner=_one_partition(options.partitioner, "partitioner") or _partition_of_request,
        )
    )
    graph.copartition(left.sources | {names.response_source})


def _add_resolver(
    left: KTable[Any, Any], joiner: Callable[..., Any], options: TableJoinOptions, names: _Names
) -> None:
    """Add the node that joins the responses with the left rows."""
    graph = left.graph
    resolve = ResponseResolve(
        table=left.node,
        joiner=with_key(joiner, 2, step=names.result),
        is_left=options.kind == "left_join",
        topic=names.registration_topic,
        value=left.value_slot,
    )
    graph.add(
        ProcessorNode(
            name=names.resolve,
            parents=(names.response_source,),
            operation=resolve,
            stores=graph.look_up(left.node),
        )
    )


def _result(
    left: KTable[Any, Any], joiner: Callable[..., Any], options: TableJoinOptions, names: _Names
) -> KTable[Any, Any]:
    graph, stored = left.graph, materialized_of(options.materialized)
    store = stored.name or graph.store_name(_OUTPUT)
    value_slot = slot_after("value", names.result, options.value, return_serde(joiner))
    return add_table(
        graph,
        names.result,
        (names.resolve,),
        TableSource(lazy_store=store, store_name=stored.name),
        (left.key_slot, value_slot),
        left.sources | {names.response_source},
        stored,
        store,
    )


def _partition_of_request(_topic: str, _key: Any, response: Any, _partitions: int) -> int:
    partition: int = response.partition
    return partition


def _one_partition(partitioner: Partitioner | None, keyword: str) -> Partitioner | None:
    """Return a partitioner that returns one partition; it gets no value, as in Kafka."""
    if partitioner is None:
        return None

    def choose(topic: str, key: Any, _value: Any, partitions: int) -> int | None:
        chosen: int | Iterable[int] | None = partitioner(topic, key, None, partitions)
        if chosen is None or isinstance(chosen, int):
            return chosen
        targets = list(chosen)
        if len(targets) != 1:
            msg = (
                f"The `{keyword}` of a foreign-key join chose the partitions {targets} for the "
                f"key {key!r}. Return exactly one."
            )
            raise ValueError(msg)
        return targets[0]

    return choose
