"""The schema registry's client, against a real server."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import (
    ConfigError,
    SchemaRegistryUnavailableError,
    TopologyError,
)
from headrace.serdes import ConfluentSchemaRegistry, Schema, SchemaReference
from headrace.serdes.registry import framed_schema_id, registered_frame, schema_registry, subject_of
from tests.unit.serdes.fake_registry import FakeRegistry, MemoryRegistry, fake_registry

STRING = Schema('"string"', "AVRO")
SECRET = "s3cret/%:@s3cret,s3cret"
QUOTED = "s3cret%2F%25%3A@s3cret,s3cret"


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


@pytest.fixture
def registry(server: FakeRegistry) -> Iterator[ConfluentSchemaRegistry]:
    registry = ConfluentSchemaRegistry({"url": server.url, "max.retries": 0})
    yield registry
    registry.client.close()


def test_a_schema_gets_a_number_and_is_found_again_by_it(
    registry: ConfluentSchemaRegistry, server: FakeRegistry
) -> None:
    first = registry.register("orders-value", STRING)
    second = registry.register("orders-key", Schema('"long"', "AVRO"))

    assert (first, second) == (1, 2)
    assert server.subjects == {"orders-value": [1], "orders-key": [2]}
    assert registry.schema_of(2) == Schema('"long"', "AVRO")


def test_a_schema_is_found_by_a_client_that_did_not_register_it(
    registry: ConfluentSchemaRegistry, server: FakeRegistry
) -> None:
    server.schemas = [{"schema": '"string"'}]

    assert registry.schema_of(1) == STRING


def test_imported_schemas_are_registered_first_and_found_again(
    registry: ConfluentSchemaRegistry, server: FakeRegistry
) -> None:
    inner = Schema("inner", "PROTOBUF")
    middle = Schema("middle", "PROTOBUF", (SchemaReference("inner.proto", "inner.proto", inner),))
    outer = Schema("outer", "PROTOBUF", (SchemaReference("m.proto", "middles", middle),))

    schema_id = registry.register("orders-value", outer)

    assert list(server.subjects) == ["inner.proto", "middles", "orders-value"]
    assert ConfluentSchemaRegistry(server.url).schema_of(schema_id) == outer


def test_without_automatic_registration_a_known_schema_is_looked_up(server: FakeRegistry) -> None:
    writer = ConfluentSchemaRegistry(server.url)
    reader = ConfluentSchemaRegistry({"url": server.url, "max.retries": 0}, auto_register=False)
    imported = Schema("outer", "PROTOBUF", (SchemaReference("a", "a", Schema("a", "PROTOBUF")),))
    expected = writer.register("orders-value", imported)
    posts = len(server.requests)

    assert reader.register("orders-value", imported) == expected
    assert not any(request.endswith("/versions") for request in server.requests[posts:])
    with pytest.raises(ValueError, match="did not number the schema of 'new-value': Subject not"):
        reader.register("new-value", STRING)


def test_an_unknown_schema_id_is_the_records_fault(registry: ConfluentSchemaRegistry) -> None:
    with pytest.raises(ValueError, match="did not give schema 99: Schema not found"):
        registry.schema_of(99)


@pytest.mark.parametrize(
    "failure",
    [
        (409, 40901, "Schema being registered is incompatible"),
        (422, 42201, "Invalid schema"),
    ],
)
def test_a_schema_that_the_registry_refuses_is_an_error_of_the_data(
    registry: ConfluentSchemaRegistry, server: FakeRegistry, failure: tuple[int, int, str]
) -> None:
    server.failure = failure

    with pytest.raises(ValueError, match=f"orders-value': {failure[2]}"):
        registry.register("orders-value", STRING)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_a_registry_that_gives_no_answer_is_unavailable(
    registry: ConfluentSchemaRegistry, server: FakeRegistry, status: int
) -> None:
    server.failure = (status, status, "Not now")

    for ask in (lambda: registry.schema_of(1), lambda: registry.register("a", STRING)):
        with pytest.raises(SchemaRegistryUnavailableError, match=r"Not now.* Check its URL"):
            ask()


def test_a_registry_that_is_back_in_time_is_not_noticed(server: FakeRegistry) -> None:
    registry = ConfluentSchemaRegistry({"url": server.url, "retries.wait.ms": 1})
    server.schemas = [{"schema": '"string"'}]
    server.failures = [(503, 503, "Not now"), (503, 503, "Not yet")]

    assert registry.schema_of(1) == STRING
    registry.client.close()


def test_a_schema_that_imports_very_many_others_is_an_error_of_the_data(
    registry: ConfluentSchemaRegistry, server: FakeRegistry
) -> None:
    itself = {"name": "a", "subject": "a", "version": 1}
    server.schemas = [{"schema": '"string"', "references": [itself, itself]}]
    server.subjects = {"a": [1]}

    with pytest.raises(ValueError, match="imports more than 100 others"):
        registry.schema_of(1)


def test_an_answer_without_a_schema_is_an_error(
    registry: ConfluentSchemaRegistry, server: FakeRegistry
) -> None:
    server.schemas = [{}]

    with pytest.raises(
        SchemaRegistryUnavailableError, match="did not give schema 1: its answer is incomplete"
    ):
        registry.schema_of(1)


def test_a_registry_without_a_server_is_an_error(server: FakeRegistry) -> None:
    with fake_registry() as gone:
        pass
    registry = ConfluentSchemaRegistry({"url": gone.url, "max.retries": 0})

    with pytest.raises(SchemaRegistryUnavailableError, match="did not number the schema of 'a'"):
        registry.register("a", STRING)


@pytest.mark.parametrize("in_url", [True, False])
def test_a_password_is_used_but_never_shown(
    in_url: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with fake_registry(user_info=f"ann:{SECRET}") as server:
        config: Any = {"url": server.url, "basic.auth.user.info": f"ann:{SECRET}"}
        if in_url:
            config = server.url.replace("//", f"//ann:{QUOTED}@")
        registry = ConfluentSchemaRegistry(config)

        assert registry.register("orders-value", STRING) == 1

        server.user_info = "ann:another"
        with pytest.raises(SchemaRegistryUnavailableError, match="Unauthorized") as caught:
            registry.schema_of(2)
        registry.client.close()

    shown = f"{registry!r} {caught.value!r} {caplog.text} {''.join(capfd.readouterr())}"
    assert repr(registry) == f"ConfluentSchemaRegistry({server.url!r})"
    assert caught.value.__cause__ is None
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"url": 5},
        {"url": f"ftp://ann:{QUOTED}@host"},
        {"url": "http://h", "no.such.setting": 1},
        {"url": "http://ann:s3cret@h", "basic.auth.user.info": f"ann:{SECRET}"},
        {"url": "http://h", "ssl.ca.location": "/no/such/file"},
    ],
)
def test_settings_that_cannot_be_used_are_refused_without_their_secrets(config: Any) -> None:
    registry = ConfluentSchemaRegistry(config)

    with pytest.raises(ConfigError, match="The settings of the schema registry") as caught:
        registry.register("orders-value", STRING)

    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_user_without_password_stays_in_the_url_and_out_of_sight() -> None:
    registry = ConfluentSchemaRegistry("http://token@host:8081")

    assert repr(registry) == "ConfluentSchemaRegistry('http://host:8081')"


def test_a_registry_survives_being_shipped_and_leaves_its_client_behind(
    registry: ConfluentSchemaRegistry, server: FakeRegistry
) -> None:
    registry.register("orders-value", STRING)

    shipped = copy.deepcopy(registry)

    assert shipped == registry
    assert hash(shipped) == hash(registry)
    assert shipped.client is not registry.client
    assert shipped.schema_of(1) == STRING
    shipped.client.close()


def test_a_client_is_used_as_it_is_and_its_settings_are_shipped(
    registry: ConfluentSchemaRegistry, server: FakeRegistry
) -> None:
    own = ConfluentSchemaRegistry(registry.client)

    assert own.client is registry.client
    assert own.register("orders-value", STRING) == 1
    assert own == registry
    shipped = copy.deepcopy(own)
    assert shipped == own
    assert shipped.schema_of(1) == STRING
    shipped.client.close()


@pytest.mark.parametrize("given", [5, None, print])
def test_an_object_that_is_no_registry_is_refused(given: Any) -> None:
    with pytest.raises(TopologyError, match=r"A schema registry is needed, but got .* its URL"):
        schema_registry(given)


def test_registries_are_equal_if_their_settings_are() -> None:
    assert ConfluentSchemaRegistry("http://a") == ConfluentSchemaRegistry({"url": "http://a"})
    assert ConfluentSchemaRegistry("http://a") != ConfluentSchemaRegistry("http://b")
    assert ConfluentSchemaRegistry("http://a") != "http://a"


def test_confluents_own_mock_can_be_used_in_tests() -> None:
    registry = ConfluentSchemaRegistry("mock://")

    assert registry.schema_of(registry.register("orders-value", STRING)) == STRING


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)

    with pytest.raises(ModuleNotFoundError, match='pip install "headrace\\[registry\\]"'):
        ConfluentSchemaRegistry("http://localhost").register("orders-value", STRING)


def test_a_url_settings_or_a_registry_can_be_given() -> None:
    own = MemoryRegistry()

    assert schema_registry(own) is own
    assert schema_registry("http://a") == ConfluentSchemaRegistry("http://a")
    assert schema_registry({"url": "http://a"}) == ConfluentSchemaRegistry("http://a")


def test_subjects_are_named_after_the_topic() -> None:
    assert subject_of("orders", is_key=True) == "orders-key"
    assert subject_of("orders", is_key=False) == "orders-value"


def test_a_frame_is_a_zero_and_the_number() -> None:
    registry = MemoryRegistry()

    frame = registered_frame(registry, "orders-value", STRING)

    assert frame == b"\x00\x00\x00\x00\x01"
    assert framed_schema_id(frame + b"payload") == 1
    assert framed_schema_id(frame) == 1


def test_a_frame_needs_a_subject() -> None:
    with pytest.raises(ValueError, match="writes for a topic, and this one has none"):
        registered_frame(MemoryRegistry(), None, STRING)


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01", b"{json}"])
def test_data_without_a_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="does not start with a zero and the number"):
        framed_schema_id(data)
