"""Errors that no record is at fault for: no handler may drop records because of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import SchemaRegistryUnavailableError, Serde, StreamsBuilder, Topology
from headrace.serdes import AvroSerde, ConfluentSchemaRegistry, StringSerde
from headrace.testing import TopologyTestDriver
from tests.unit.serdes.fake_registry import FakeRegistry, fake_registry

CONTINUE: Any = {
    "deserialization_exception_handler": "continue",
    "processing_exception_handler": "continue",
    "production_exception_handler": "continue",
}


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


def avro(server: FakeRegistry, *, retries: int = 0) -> AvroSerde[Any]:
    settings = {"url": server.url, "max.retries": retries, "retries.wait.ms": 1}
    return AvroSerde("string", registry=ConfluentSchemaRegistry(settings))


def copying(value: Serde[Any], output: Serde[Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=value).map_values(lambda text: text, value=output).to("out")
    return builder.build()


@pytest.mark.parametrize("status", [401, 503])
def test_a_registry_that_is_away_drops_no_input(server: FakeRegistry, status: int) -> None:
    server.schemas = [{"schema": '"string"'}]
    server.failure = (status, status, "Not now")

    with TopologyTestDriver(copying(avro(server), StringSerde()), **CONTINUE) as driver:
        topic = driver.create_input_topic("in", value=bytes)
        with pytest.raises(SchemaRegistryUnavailableError, match="Not now"):
            topic.pipe_input("k", b"\0\0\0\0\1\x02a")

        assert dropped(driver) == 0


def test_a_registry_that_is_away_drops_no_output(server: FakeRegistry) -> None:
    server.failure = (503, 503, "Not now")

    with TopologyTestDriver(copying(StringSerde(), avro(server)), **CONTINUE) as driver:
        with pytest.raises(SchemaRegistryUnavailableError, match="Not now"):
            driver.create_input_topic("in").pipe_input("k", "a")

        assert dropped(driver) == 0


def test_a_registry_that_is_back_in_time_is_not_noticed(server: FakeRegistry) -> None:
    server.failures = [(503, 503, "Not now")]

    with TopologyTestDriver(copying(StringSerde(), avro(server, retries=2)), **CONTINUE) as driver:
        driver.create_input_topic("in").pipe_input("k", "a")
        written = driver.create_output_topic("out").read_values_to_list()

    assert written == ["a"]


def test_a_schema_that_the_registry_does_not_know_is_an_error_of_the_record(
    server: FakeRegistry,
) -> None:
    with TopologyTestDriver(copying(avro(server), StringSerde()), **CONTINUE) as driver:
        driver.create_input_topic("in", value=bytes).pipe_input("k", b"\0\0\0\0\7\x02a")

        assert dropped(driver) == 1


class FullMemory(StringSerde):
    """A serde that finds no memory."""

    def serialize(self, value: str, /) -> bytes:
        raise MemoryError(len(value))

    def deserialize(self, data: bytes, /) -> str:
        raise MemoryError(len(data))


@pytest.mark.parametrize(
    ("value", "output"), [(FullMemory(), StringSerde()), (StringSerde(), FullMemory())]
)
def test_a_lack_of_memory_drops_no_record(value: Serde[str], output: Serde[str]) -> None:
    with TopologyTestDriver(copying(value, output), **CONTINUE) as driver:
        topic = driver.create_input_topic("in", value=bytes)
        with pytest.raises(MemoryError):
            topic.pipe_input("k", b"a")

        assert dropped(driver) == 0


def test_a_function_that_finds_no_memory_drops_no_record() -> None:
    def fail(_: str) -> str:
        raise MemoryError

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(fail, value=str).to("out")

    with TopologyTestDriver(builder.build(), **CONTINUE) as driver:
        topic = driver.create_input_topic("in")
        with pytest.raises(MemoryError):
            topic.pipe_input("k", "a")

        assert dropped(driver) == 0


def dropped(driver: TopologyTestDriver) -> float:
    counts = driver.metrics().items()
    return sum(count for name, count in counts if str(name) == "dropped-records-total")
