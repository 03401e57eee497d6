"""A serde has the type it reads and writes, and gives it to the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type
from uuid import UUID

from headrace import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    JsonSerde,
    KStream,
    LongSerde,
    Serde,
    Serdes,
    StreamsBuilder,
    StringSerde,
    UuidSerde,
)


@dataclass
class Order:
    customer: str


class ReversedText:
    def serialize(self, value: str, /) -> bytes:
        return value[::-1].encode()

    def deserialize(self, data: bytes, /) -> str:
        return data.decode()[::-1]


assert_type(Serdes.string(), StringSerde)
assert_type(Serdes.bytes(), BytesSerde)
assert_type(Serdes.long(), LongSerde)
assert_type(Serdes.double(), DoubleSerde)
assert_type(Serdes.boolean(), BooleanSerde)
assert_type(Serdes.uuid(), UuidSerde)
assert_type(Serdes.string().deserialize(b"x"), str)
assert_type(Serdes.integer().deserialize(b"\0\0\0\1"), int)
assert_type(
    Serdes.uuid().deserialize(UUID(int=1).hex.encode()[:0] + str(UUID(int=1)).encode()), UUID
)
assert_type(Serdes.json(Order), JsonSerde[Order])
assert_type(
    Serdes.list_of(Serdes.string()).deserialize(Serdes.list_of(Serdes.string()).serialize(["a"])),
    list[str],
)

text: Serde[str] = Serdes.string()
own: Serde[str] = ReversedText()
shouting = Serdes.of(lambda value: value.encode(), lambda data: data.decode().upper())

builder = StreamsBuilder()
assert_type(builder.stream("a", key=Serdes.string(), value=Serdes.long()), KStream[str, int])
assert_type(builder.stream("b", key=str, value=Serdes.json(Order)), KStream[str, Order])
assert_type(builder.stream("c", key=ReversedText(), value=float), KStream[str, float])
assert_type(builder.stream("d", key=UUID, value=list[Order]), KStream[UUID, list[Order]])
