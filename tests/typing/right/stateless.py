"""Types flow through the stateless operations of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_type

from headrace import Branches, KGroupedStream, KStream, KTable, RecordContext, StreamsBuilder


@dataclass
class Order:
    customer: str
    amount: float


builder = StreamsBuilder()
lines = builder.stream("lines", key=str, value=str)
orders = builder.stream("orders", key=str, value=Order)

assert_type(lines, KStream[str, str])
assert_type(orders, KStream[str, Order])
assert_type(builder.stream(["a", "b"], key=int, value=bytes), KStream[int, bytes])

assert_type(
    orders.filter(lambda customer, order: order.amount > len(customer)), KStream[str, Order]
)
assert_type(orders.filter_not(lambda _, order: order.amount > 1), KStream[str, Order])

assert_type(lines.map_values(len), KStream[str, int])
assert_type(lines.map_values(lambda line: line.upper(), value=str), KStream[str, str])
assert_type(lines.map_values(lambda key, line: len(key) + len(line), value=int), KStream[str, int])
assert_type(orders.map_values(lambda order: order.amount, value=float), KStream[str, float])


def amount_of(order: Order) -> float:
    return order.amount


def labelled(customer: str, order: Order) -> str:
    return f"{customer} {order.amount}"


assert_type(orders.map_values(amount_of), KStream[str, float])
assert_type(orders.map_values(labelled), KStream[str, str])


def by_length(key: str, line: str) -> tuple[int, bytes]:
    return len(line), line.encode()


assert_type(lines.map(by_length), KStream[int, bytes])
assert_type(lines.map(lambda key, line: (len(line), key), key=int, value=str), KStream[int, str])


def words_with_length(key: str, line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, len(word)


def words(line: str) -> list[str]:
    return line.split()


assert_type(lines.flat_map(words_with_length), KStream[str, int])
assert_type(lines.flat_map_values(words), KStream[str, str])
assert_type(lines.flat_map_values(lambda line: line.split(), value=str), KStream[str, str])
assert_type(lines.flat_map_values(lambda key, line: [len(key)], value=int), KStream[str, int])

assert_type(orders.select_key(lambda _, order: order.customer, key=str), KStream[str, Order])
assert_type(lines.select_key(lambda _, line: len(line), key=int), KStream[int, str])

assert_type(orders.peek(lambda customer, order: print(customer, order.amount)), KStream[str, Order])
assert_type(lines.merge(builder.stream("more", key=str, value=str)), KStream[str, str])
assert_type(lines.repartition(partitions=4), KStream[str, str])
assert_type(lines.to_table(), KTable[str, str])

branches = (
    orders.split(name="size-")
    .branch(lambda _, order: order.amount > 100, "large")
    .branch(lambda _, order: order.amount > 10, "middle")
    .default_branch("small")
)
assert_type(branches, Branches[str, Order])
assert_type(branches["large"], KStream[str, Order])
assert_type(
    orders.split().branch(lambda _, o: o.amount > 1).no_default_branch(), Branches[str, Order]
)

assert_type(orders.group_by_key(), KGroupedStream[str, Order])
assert_type(orders.group_by(lambda _, order: order.customer, key=str), KGroupedStream[str, Order])
assert_type(lines.group_by(lambda _, line: len(line), key=int), KGroupedStream[int, str])


def topic_of(customer: str, order: Order, context: RecordContext) -> str:
    return f"{context.topic}-{order.customer}-{customer}"


orders.to("copy")
orders.to(topic_of)
orders.to(lambda customer, order, context: f"{context.topic}-{order.customer}{customer}")
orders.foreach(lambda customer, order: None)
orders.print(label="orders")

users = builder.table("users", key=str, value=str, materialized="users")
assert_type(users, KTable[str, str])
assert_type(users.filter(lambda user, region: user != region), KTable[str, str])
assert_type(users.filter_not(lambda user, region: user != region), KTable[str, str])
assert_type(users.map_values(len), KTable[str, int])
assert_type(users.map_values(lambda region: region.upper(), value=str), KTable[str, str])
assert_type(users.to_stream(), KStream[str, str])
assert_type(users.to_stream(lambda user, region: len(region), key=int), KStream[int, str])
assert_type(users.queryable_store_name, str | None)
