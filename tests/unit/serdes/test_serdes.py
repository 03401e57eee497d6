"""The factory, the two-function serde, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type
from uuid import UUID

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from headrace.errors import TopologyError
from headrace.serdes import (
    AvroSerde,
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    FunctionSerde,
    IntegerSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    ProtobufSerde,
    Serde,
    Serdes,
    SessionWindowedSerde,
    ShortSerde,
    StringSerde,
    TimeWindowedSerde,
    UuidSerde,
    VoidSerde,
)
from headrace.serdes.base import serde_for_topic
from headrace.windows.window import Windowed


@dataclass
class Order:
    order_id: int


def test_every_serde_has_a_name() -> None:
    assert Serdes.string() == StringSerde()
    assert Serdes.bytes() == BytesSerde()
    assert Serdes.short() == ShortSerde()
    assert Serdes.integer() == IntegerSerde()
    assert Serdes.long() == LongSerde()
    assert Serdes.float() == FloatSerde()
    assert Serdes.double() == DoubleSerde()
    assert Serdes.boolean() == BooleanSerde()
    assert Serdes.uuid() == UuidSerde()
    assert Serdes.void() == VoidSerde()
    assert Serdes.list_of(Serdes.long()) == ListSerde(LongSerde())
    assert Serdes.json() == JsonSerde()
    assert Serdes.json(Order, rename="camel") == JsonSerde(Order, rename="camel")
    assert Serdes.avro("string", str, registry="http://a") == AvroSerde("string", str, "http://a")
    assert Serdes.protobuf(Timestamp, registry="http://a") == ProtobufSerde(Timestamp, "http://a")
    assert Serdes.session_windowed(Serdes.string()) == SessionWindowedSerde(StringSerde())


@pytest.mark.parametrize("size", [15_000, timedelta(seconds=15), "15s"])
def test_the_size_of_windows_is_any_duration(size: Any) -> None:
    assert Serdes.time_windowed(str, size) == TimeWindowedSerde(StringSerde(), 15_000)


def test_a_size_that_is_no_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="`size` is 'soon', which is not a duration"):
        Serdes.time_windowed(str, "soon")


def test_inner_serdes_may_be_types() -> None:
    assert Serdes.list_of(str) == ListSerde(StringSerde())
    assert Serdes.session_windowed(int) == SessionWindowedSerde(LongSerde())
    with pytest.raises(TopologyError, match="StringSerde is a serde class"):
        Serdes.list_of(StringSerde)


def test_type_checkers_know_what_serdes_hold() -> None:
    texts: Serde[str] = Serdes.string()
    counts: Serde[int] = Serdes.long()
    flags: Serde[bool] = Serdes.boolean()
    ids: Serde[UUID] = Serdes.uuid()
    nothing: Serde[None] = Serdes.void()

    assert_type(Serdes.list_of(Serdes.long()), ListSerde[int])
    assert_type(Serdes.json(), JsonSerde[Any])
    assert_type(Serdes.json(Order), JsonSerde[Order])
    assert_type(Serdes.json(list[Order]), JsonSerde[list[Order]])
    assert_type(Serdes.json(int | str), JsonSerde[Any])
    assert_type(Serdes.avro("string"), AvroSerde[Any])
    assert_type(Serdes.avro("string", str), AvroSerde[str])
    assert_type(Serdes.protobuf(Timestamp), ProtobufSerde[Timestamp])
    assert_type(Serdes.of(str.encode, bytes.decode), FunctionSerde[str])
    windowed: Serde[Windowed[str]] = Serdes.time_windowed(str, "5s")
    sessions: Serde[Windowed[int]] = Serdes.session_windowed(Serdes.long())
    assert [texts, counts, flags, ids, nothing, windowed, sessions] != []


@pytest.mark.parametrize(
    "serde",
    [
        StringSerde(),
        BytesSerde(),
        ShortSerde(),
        IntegerSerde(),
        LongSerde(),
        FloatSerde(),
        DoubleSerde(),
        BooleanSerde(),
        UuidSerde(),
        VoidSerde(),
        ListSerde(StringSerde()),
        TimeWindowedSerde(StringSerde(), 5),
        SessionWindowedSerde(StringSerde()),
        Serdes.of(str.encode, bytes.decode),
    ],
    ids=repr,
)
def test_a_serde_cannot_be_changed(serde: Any) -> None:
    with pytest.raises(AttributeError):
        serde.inner = LongSerde()


def test_two_functions_make_a_serde() -> None:
    serde = Serdes.of(lambda value: str(value).encode(), lambda data: int(data))

    assert serde.serialize(5) == b"5"
    assert serde.deserialize(b"5") == 5


def test_a_function_that_does_not_return_bytes_is_refused() -> None:
    serde: FunctionSerde[Any] = Serdes.of(str, int)  # type: ignore[arg-type]  # what the test is about

    with pytest.raises(TypeError, match=r"must return bytes, but returned str. Encode what it"):
        serde.serialize(5)


def test_serdes_of_the_same_functions_are_equal() -> None:
    assert Serdes.of(str.encode, bytes.decode) == Serdes.of(str.encode, bytes.decode)


def test_a_serde_that_does_not_care_about_topics_is_used_on_all() -> None:
    serde = StringSerde()

    assert serde_for_topic(serde, "orders", is_key=True) is serde


def test_a_serde_that_cares_about_topics_is_asked() -> None:
    class Caring(StringSerde):
        def for_topic(self, topic: str, *, is_key: bool) -> Serde[str]:
            return Serdes.of(lambda value: f"{topic} {is_key}".encode(), bytes.decode)

    assert serde_for_topic(Caring(), "orders", is_key=True).serialize("") == b"orders True"


@pytest.mark.tier("test")  # starts a process
def test_importing_serdes_imports_no_optional_dependency() -> None:
    optional = ["fastavro", "google.protobuf", "confluent_kafka", "pydantic"]
    program = (
        "import sys, headrace.serdes as serdes; serdes.Serdes.json(dict); "
        f"print([name for name in {optional} if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
