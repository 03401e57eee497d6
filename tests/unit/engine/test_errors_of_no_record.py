"""Errors that no record is at fault for: no handler may drop records because of them."""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import URLError

import pytest

from headrace import (
    BrokerUnavailableError,
    ConfigError,
    Materialized,
    Processor,
    Record,
    RecordError,
    SchemaRegistryUnavailableError,
    Serde,
    StateStoreError,
    Stores,
    StreamsBuilder,
    StreamsError,
    Topology,
)
from headrace.serdes import AvroSerde, ConfluentSchemaRegistry, Serdes, StringSerde
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


class Broken(StringSerde):
    """A serde that raises an error in both directions."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def serialize(self, value: str, /) -> bytes:
        raise self.error

    def deserialize(self, data: bytes, /) -> str:
        raise self.error


SYSTEMS = [
    BrokerUnavailableError("No answer."),
    ConfigError("The settings of the schema registry cannot be used."),
    ModuleNotFoundError("A schema registry needs an extra"),
    ConnectionRefusedError(111, "Connection refused"),
    TimeoutError("timed out"),
    URLError("no route"),
]
OF_SYSTEMS = pytest.mark.parametrize("error", SYSTEMS, ids=lambda error: type(error).__name__)


def assert_drops_nothing(topology: Topology, error: Exception, value: bytes = b"a") -> None:
    """Pipe a record and assert that the application stops with the error as its reason."""
    with TopologyTestDriver(topology, **CONTINUE) as driver:
        topic = driver.create_input_topic("in", value=bytes)
        with pytest.raises(StreamsError, match=re.escape(str(error))) as caught:
            topic.pipe_input("k", value)

        assert not isinstance(caught.value, RecordError)
        assert error in (caught.value, caught.value.__cause__)
        assert dropped(driver) == 0


@OF_SYSTEMS
def test_a_serde_that_misses_a_system_drops_no_input(error: Exception) -> None:
    assert_drops_nothing(copying(Broken(error), StringSerde()), error)


@OF_SYSTEMS
def test_a_serde_that_misses_a_system_drops_no_output(error: Exception) -> None:
    assert_drops_nothing(copying(StringSerde(), Broken(error)), error)


@OF_SYSTEMS
@pytest.mark.parametrize("cache", [0, 1])
def test_a_serde_of_a_store_that_misses_a_system_drops_no_record(
    error: Exception, cache: int
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    materialized = Materialized(value=Broken(error))
    stream.group_by_key().reduce(lambda _old, new: new, materialized=materialized)
    settings: Any = CONTINUE | {"statestore_cache_max_bytes": cache}

    with TopologyTestDriver(builder.build(), **settings) as driver:
        topic = driver.create_input_topic("in")
        with pytest.raises(StreamsError, match=re.escape(str(error))) as caught:
            topic.pipe_input("k", "a")

        assert not isinstance(caught.value, RecordError | StateStoreError)
        assert dropped(driver) == 0


@pytest.mark.parametrize("error", SYSTEMS[:3], ids=lambda error: type(error).__name__)
def test_a_function_that_misses_a_system_of_headrace_drops_no_record(error: Exception) -> None:
    def fail(_: str) -> str:
        raise error

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(fail, value=str).to("out")

    assert_drops_nothing(builder.build(), error)


def test_a_function_that_cannot_open_what_a_record_names_asks_the_handler() -> None:
    def fail(_: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", "a")

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(fail, value=str).to("out")

    with TopologyTestDriver(builder.build(), **CONTINUE) as driver:
        driver.create_input_topic("in").pipe_input("k", "a")

        assert dropped(driver) == 1


@pytest.mark.parametrize("decompress", [gzip.decompress, bz2.decompress])
def test_data_that_cannot_be_decompressed_is_an_error_of_the_record(
    decompress: Callable[[bytes], bytes],
) -> None:
    value: Serde[bytes] = Serdes.of(bytes, decompress)

    with TopologyTestDriver(copying(value, value), **CONTINUE) as driver:
        driver.create_input_topic("in", value=bytes).pipe_input("k", b"no such format")

        assert dropped(driver) == 1


TEXTS = Stores.key_value("texts", str, str)


class Misusing(Processor[str, str, str, str]):
    """Puts a record under a key that no store can keep."""

    def process(self, record: Record[str, str]) -> None:
        none: Any = None
        self.context.get_state_store(TEXTS).put(none, record.value)


def test_a_key_that_no_store_can_keep_is_an_error_of_the_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(Misusing, stores=[TEXTS])

    with TopologyTestDriver(builder.build(), **CONTINUE) as driver:
        driver.create_input_topic("in").pipe_input("k", "a")

        assert dropped(driver) == 1


def dropped(driver: TopologyTestDriver) -> float:
    counts = driver.metrics().items()
    return sum(count for name, count in counts if str(name) == "dropped-records-total")
