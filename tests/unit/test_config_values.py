from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from headrace.config.masking import is_secret, masked_repr
from headrace.config.objects import ExtractorValue, HandlerValue, SerdeValue
from headrace.config.values import (
    OPTIMIZATIONS,
    Addresses,
    Choice,
    Flag,
    Length,
    Location,
    Name,
    Optimizations,
    Prefixed,
    Text,
    Trigger,
    Value,
    Whole,
    offset_reset_from_text,
)
from headrace.processors.handlers import ErrorHandlerContext, HandlerResponse
from headrace.records import ConsumerRecord
from headrace.serdes.base import Serde
from headrace.serdes.json_serde import JsonSerde
from headrace.serdes.list_serde import ListSerde
from headrace.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from headrace.timestamps import (
    FailOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)


class Order(Struct):
    amount: float


class UpperSerde(Serde[str]):
    def serialize(self, value: str, /) -> bytes:
        return value.upper().encode()

    def deserialize(self, data: bytes, /) -> str:
        return data.decode()


class Skip:
    def __call__(
        self, context: ErrorHandlerContext, record: Any, error: Exception
    ) -> HandlerResponse:
        return HandlerResponse.resume()


class NeedsMore:
    def __init__(self, more: int) -> None:
        self.more = more


def own_time(record: ConsumerRecord, partition_time: int) -> int:
    return partition_time + 1


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``module:name`` find this file, whatever name pytest imported it by."""
    monkeypatch.setitem(sys.modules, "this_module", sys.modules[__name__])


def read(value: Value, given: object) -> object:
    return value.read(given, "the_setting")


@pytest.mark.parametrize(
    ("value", "given", "kept"),
    [
        (Text(), " as it is ", " as it is "),
        (Name(), "my-app_1.x", "my-app_1.x"),
        (Name(249), "t" * 249, "t" * 249),
        (Flag(), True, True),
        (Whole(), 0, 0),
        (Whole(-1), -1, -1),
        (Length(), "1s", timedelta(seconds=1)),
        (Length(), timedelta(days=1), timedelta(days=1)),
        (Length(-1), -1, timedelta(milliseconds=-1)),
        (Length(None), "-5s", timedelta(seconds=-5)),
        (Choice(("a", "b")), "b", "b"),
        (Location(), "a/b", Path("a/b")),
        (Location(), Path("a"), Path("a")),
        (Addresses(), "one:65535", "one:65535"),
        (Addresses(), "one:9092, [::1]:9093", "one:9092,[::1]:9093"),
        (Addresses(), ("one:1", " two:2"), "one:1,two:2"),
        (Addresses(), "SASL_SSL://one:9092", "SASL_SSL://one:9092"),
        (Addresses(single=True), "127.0.0.1:8080", "127.0.0.1:8080"),
        (Optimizations(), "none", ()),
        (Optimizations(), [], ()),
        (Optimizations(), "all", OPTIMIZATIONS),
        (Optimizations(), "single.store.self.join", ("single.store.self.join",)),
        (Optimizations(), [OPTIMIZATIONS[1], OPTIMIZATIONS[0]], OPTIMIZATIONS[:2]),
        (Trigger(), "continuous", "continuous"),
        (Trigger(), "available_now", "available_now"),
        (Trigger(), 500, timedelta(milliseconds=500)),
        (Prefixed("consumer."), {}, {}),
        (Prefixed("consumer."), {"a.ms": timedelta(seconds=1)}, {"a.ms": "1000"}),
        (Prefixed("consumer."), {"a.ms": "1000", "b": 0.5}, {"a.ms": "1000", "b": "0.5"}),
        (Prefixed("consumer."), {"a": True, "b": None}, {"a": "true"}),
        (Prefixed("consumer."), {"auto.offset.reset": "none"}, {"auto.offset.reset": "none"}),
        (
            Prefixed("consumer."),
            {"auto.offset.reset": "by_duration:P1DT2H"},
            {"auto.offset.reset": "by_duration:P1DT2H"},
        ),
        (Prefixed("x.", is_kafka=False), {"a_b": 1, "a.ms": "5s"}, {"a_b": "1", "a.ms": "5s"}),
        (Prefixed("spark.", keeps_prefix=True), {"spark.a": "b"}, {"spark.a": "b"}),
    ],
)
def test_a_value_is_read_once_and_for_all(value: Value, given: object, kept: object) -> None:
    assert read(value, given) == kept
    assert read(value, read(value, given)) == kept
    assert value.described()


@pytest.mark.parametrize(
    ("value", "given", "message"),
    [
        (Text(), 5, "is of type int. Use text."),
        (Name(), "", "is '', which cannot be part of a topic or a path"),
        (Name(), ".", "is '.', which cannot be part of a topic or a path"),
        (Name(), "..", "is '..', which cannot be part of a topic or a path"),
        (Name(), "a/b", "is 'a/b', which cannot be part of a topic or a path"),
        (Name(), "a\n", "which cannot be part of a topic or a path"),
        (Name(), "ä", "Use 1 to 200 letters, digits, '.', '_' or '-'."),
        (Name(), "t" * 201, "Use 1 to 200 letters"),
        (Name(), 5, "is 5, which cannot be part of a topic or a path"),
        (Flag(), 1, "is 1. Use true or false."),
        (Flag(), "true", "is 'true'. Use true or false."),
        (Whole(), -1, "is -1. Use a whole number of 0 or more."),
        (Whole(), True, "is True. Use a whole number"),
        (Whole(), "5", "is '5'. Use a whole number"),
        (Whole(), 1.0, "is 1.0. Use a whole number"),
        (Length(), -1, "is -1. Use 0ms or more."),
        (Length(-1), -2, "is -2. Use -1ms or more."),
        (Length(), "100", "is '100', which is not a duration."),
        (Length(), 2**63 - 1, "is 9223372036854775807, which is too long. Use at most 999999999d."),
        (Choice(("a", "b")), "c", "is 'c'. Use 'a' or 'b'."),
        (Choice(("a", "b")), ["a"], "is ['a']. Use 'a' or 'b'."),
        (Location(), "", "is ''. Use the path of a file or folder."),
        (Location(), "a\0b", "Use the path of a file or folder."),
        (Location(), 5, "is 5. Use the path of a file or folder."),
        (Addresses(), "", "is '', which is no address. Use host:port, with commas"),
        (Addresses(), [], "is [], which is no address."),
        (Addresses(), "one", "is 'one', which is no address."),
        (Addresses(), "one:65536", "is 'one:65536', which is no address."),
        (Addresses(), "one:1,two", "is 'one:1,two', which is no address."),
        (Addresses(), 9092, "is 9092, which is no address."),
        (Addresses(single=True), "a:1,b:2", "is 'a:1,b:2', which is no address. Use host:port."),
        (Optimizations(), "all,none", 'is \'all,none\'. Use "none", "all", or a list of reuse'),
        (Optimizations(), "fast", "is 'fast'. Use"),
        (Optimizations(), 5, "is 5. Use"),
        (Trigger(), "once", 'is \'once\'. Use "continuous", "available_now", or a duration'),
        (Trigger(), -1, "is -1. Use"),
        (Prefixed("consumer."), "a=b", "is of type str. Use a mapping of dotted names to values."),
        (Prefixed("consumer."), {5: "a"}, "has the name 5. Use text."),
        (Prefixed("consumer."), {"": "a"}, "has the name ''. Use text."),
        (Prefixed("consumer."), {"consumer.a": 1}, "has the name 'consumer.a'. Write 'a' there."),
        (Prefixed("spark.", keeps_prefix=True), {"a": 1}, "Write 'spark.a' there."),
        (Prefixed("consumer."), {"a_b": 1}, "but Kafka's names have dots. Write 'a.b'."),
        (Prefixed("consumer."), {"a": [1]}, "`consumer.a` is of type list. Use text, a number"),
        (Prefixed("spark.", keeps_prefix=True), {"spark.a": [1]}, "`spark.a` is of type list."),
        (Prefixed("consumer."), {"a.ms": True}, "`consumer.a.ms` is True, which is not a duration"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_the_remedy(
    value: Value, given: object, message: str
) -> None:
    with pytest.raises(ValueError, match=r"^`(the_setting|consumer\.|spark\.)") as raised:
        read(value, given)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("none", "none"),
        ("by_duration:PT0S", 0),
        ("by_duration:P1DT2H3M4.005S", 93_784_005),
    ],
)
def test_where_a_consumer_starts_is_a_word_or_a_length_of_time(text: str, meant: str | int) -> None:
    assert offset_reset_from_text(text) == meant


@pytest.mark.parametrize(
    "given",
    [
        "newest",
        "EARLIEST",
        "",
        5,
        "by_duration",
        "by_duration:",
        "by_duration:1h",
        "by_duration:-PT1H",
        "by_duration:P1M",
        "by_duration:PT0.0001S",
    ],
)
@pytest.mark.parametrize("prefix", ["consumer.", "main.consumer."])
def test_a_wrong_auto_offset_reset_is_refused(prefix: str, given: object) -> None:
    with pytest.raises(ValueError, match="auto") as raised:
        read(Prefixed(prefix), {"auto.offset.reset": given})

    assert str(raised.value) == (
        f"`{prefix}auto.offset.reset` is {given!r}. Use 'earliest', 'latest', 'none', or how far "
        "back to start, such as 'by_duration:PT1H30M'."
    )


@pytest.mark.parametrize(
    ("value", "text", "meant"),
    [
        (Text(), " x ", " x "),
        (Flag(), "True ", True),
        (Flag(), "false", False),
        (Flag(), "yes", "yes"),
        (Whole(), " 12 ", 12),
        (Whole(), "twelve", "twelve"),
        (Length(), "-1", -1),
        (Length(), "1s", "1s"),
        (Choice(("INFO", "DEBUG")), " debug", "DEBUG"),
        (Choice(("INFO", "DEBUG")), "loud", "loud"),
        (Choice(("a",), {"AStores": "a"}), "org.x.Built$AStores", "a"),
        (Trigger(), "500", 500),
        (Trigger(), "continuous", "continuous"),
    ],
)
def test_text_of_a_file_is_understood_before_it_is_read(
    value: Value, text: str, meant: object
) -> None:
    understood = value.from_text(text)

    assert understood == meant
    assert type(understood) is type(meant)


def skip(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
    return HandlerResponse.resume()


def test_a_handler_may_be_a_word_an_object_a_class_or_a_name_to_import() -> None:
    assert read(HandlerValue(), "continue") == "continue"
    assert read(HandlerValue(), "org.apache.x.LogAndFailExceptionHandler") == "fail"
    assert read(HandlerValue(), skip) is skip
    assert isinstance(read(HandlerValue(), Skip), Skip)
    assert isinstance(read(HandlerValue(), "this_module:Skip"), Skip)
    assert read(HandlerValue(), "this_module:skip") is skip


def test_an_extractor_may_be_an_object_a_class_or_a_name() -> None:
    assert read(ExtractorValue(), own_time) is own_time
    assert read(ExtractorValue(), WallclockTimestampExtractor) == WallclockTimestampExtractor()
    assert read(ExtractorValue(), "FailOnInvalidTimestamp") == FailOnInvalidTimestamp()
    assert (
        read(
            ExtractorValue(),
            "org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp",
        )
        == UsePartitionTimeOnInvalidTimestamp()
    )
    assert read(ExtractorValue(), "this_module:own_time") is own_time


def test_a_serde_may_be_an_object_a_type_a_class_or_a_name() -> None:
    assert read(SerdeValue(), LongSerde()) == LongSerde()
    assert read(SerdeValue(), str) == StringSerde()
    assert isinstance(read(SerdeValue(), Order), JsonSerde)
    assert isinstance(read(SerdeValue(), list[Order]), JsonSerde)
    assert isinstance(read(SerdeValue(), UpperSerde), UpperSerde)
    assert isinstance(read(SerdeValue(), "this_module:UpperSerde"), UpperSerde)
    assert isinstance(read(SerdeValue(), "this_module:Order"), JsonSerde)
    assert read(SerdeValue(), "str") == StringSerde()
    assert read(SerdeValue(), "builtins:float") == DoubleSerde()


@pytest.mark.parametrize(
    ("name", "serde"),
    [
        ("StringSerde", StringSerde()),
        ("BytesSerde", BytesSerde()),
        ("ByteArraySerde", BytesSerde()),
        ("ShortSerde", ShortSerde()),
        ("IntegerSerde", IntegerSerde()),
        ("LongSerde", LongSerde()),
        ("FloatSerde", FloatSerde()),
        ("DoubleSerde", DoubleSerde()),
        ("BooleanSerde", BooleanSerde()),
        ("UUIDSerde", UuidSerde()),
        ("VoidSerde", VoidSerde()),
    ],
)
def test_a_serde_may_be_named_as_kafka_does(name: str, serde: object) -> None:
    written = f"org.apache.kafka.common.serialization.Serdes${name}"

    assert read(SerdeValue(), written) == serde
    assert read(SerdeValue(), name) == serde


@pytest.mark.parametrize(
    ("value", "given", "message"),
    [
        (HandlerValue(), "skip", "`the_setting`: 'skip' is not an exception handler. Use \"fail\""),
        (HandlerValue(), 5, "`the_setting`: 5 is not an exception handler."),
        (HandlerValue(), "nowhere:Skip", "cannot be imported (ModuleNotFoundError: No module"),
        (HandlerValue(), "this_module:Nothing", "cannot be imported (AttributeError: "),
        (HandlerValue(), "this_module:", "cannot be imported"),
        (HandlerValue(), ":Skip", "Use the name of a module, ':', and a name in it."),
        (HandlerValue(), NeedsMore, "is the class NeedsMore, which cannot be made without"),
        (ExtractorValue(), "later", "is 'later', which is not a timestamp extractor. Use Fail"),
        (ExtractorValue(), 5, "is 5, which is not a timestamp extractor."),
        (ExtractorValue(), NeedsMore, "Give an instance of it."),
        (SerdeValue(), "text", "is 'text', which names no serde. Use one of str, bytes, int"),
        (SerdeValue(), 5, "`the_setting` cannot be used as a serde."),
        (SerdeValue(), ListSerde, "is the class ListSerde, which cannot be made without"),
    ],
)
def test_an_object_that_cannot_be_had_is_refused_with_the_reason(
    value: Value, given: object, message: str
) -> None:
    with pytest.raises(ValueError, match=r"^`the_setting`") as raised:
        read(value, given)

    assert message in str(raised.value)


@pytest.mark.parametrize("value", [HandlerValue(), ExtractorValue(), SerdeValue()])
def test_values_that_hold_objects_are_described_as_module_and_name(value: Value) -> None:
    assert "module:name" in value.described()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.password", "x"),
        ("sasl_password", "x"),
        ("ssl.key.password", "x"),
        ("ssl.keystore.password", "x"),
        ("ssl.keystore.key", "x"),
        ("ssl.key.pem", "x"),
        ("sasl.jaas.config", "x"),
        ("sasl.oauthbearer.client.secret", "x"),
        ("sasl.oauthbearer.config", "x"),
        ("basic.auth.user.info", "user:x"),
        ("basic.auth.credentials.source", "x"),
        ("spark.hadoop.fs.s3a.access.key", "x"),
        ("spark.hadoop.fs.azure.account.key.store", "x"),
        ("spark.ssl.keyPassword", "x"),
        ("spark.authenticate.secret", "x"),
        ("schema.registry.url", "https://user:x@registry:8081"),
        ("spark.driver.extraJavaOptions", "-Ddb.password=x"),
        ("anything", '{"token": "x"}'),
    ],
)
def test_a_secret_is_known_by_its_name_or_by_its_text(name: str, value: str) -> None:
    assert is_secret(name, value)
    assert masked_repr(name, value) == "'****'"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("application.id", "orders"),
        ("default.key.serde", "str"),
        ("ssl.key.location", "/etc/key"),
        ("server.token.file", "/etc/token"),
        ("ssl.keystore.location", "/etc/keystore.p12"),
        ("schema.registry.url", "https://registry:8081"),
        ("bootstrap.servers", "SSL://one:9092,SSL://two:9092"),
        ("max.poll.records", 5),
    ],
)
def test_what_is_no_secret_is_shown(name: str, value: object) -> None:
    assert masked_repr(name, value) == repr(value)
