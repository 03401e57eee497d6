"""Log records in a topic: keys, JSON, delivery, and all of it from `dictConfig`."""

from __future__ import annotations

import json
import logging
import logging.config
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from headrace import BufferExhaustedError, ConfigError, StreamsConfig
from headrace.brokers import open_log
from headrace.clients import (
    JsonFormatter,
    KafkaConsumer,
    KafkaHandler,
    TopicPartition,
    log_context,
)
from headrace.clients.log_keys import java_hash

browser: ContextVar[str] = ContextVar("browser")


def by_level(record: logging.LogRecord) -> str:
    return record.levelname


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "topics.db"
    log = open_log(StreamsConfig(embedded_path=file))
    log.create_topic("logs", partitions=2)
    log.create_topic("small", settings={"max.message.bytes": "200"})
    log.close()
    yield file
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})


def written(path: Path, topic: str = "logs") -> list[tuple[bytes | None, str]]:
    with KafkaConsumer(
        key=bytes, value=str, auto_offset_reset="earliest", embedded_path=path
    ) as consumer:
        consumer.assign(consumer.partitions_for(topic))
        return [(record.key, record.value) for record in consumer.poll()]


def event(name: str = "shop", **attributes: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": name, "msg": "text", "levelname": "INFO", **attributes})


class Remembering(logging.Handler):
    """A fallback that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.got.append(record.getMessage())


@pytest.mark.parametrize(
    ("keying", "key"),
    [
        ("none", None),
        ("logger", b"shop"),
        ("thread", bytes.fromhex("003305b9")),
        ("context", bytes.fromhex("36ca9dd8")),
        (by_level, b"INFO"),
        (f"{__name__}:by_level", b"INFO"),
    ],
)
def test_a_name_or_a_function_decides_the_key(path: Path, keying: Any, key: bytes | None) -> None:
    handler = KafkaHandler(
        "logs", keying=keying, context_name="shop-context", config={"embedded.path": path}
    )

    handler.handle(event(threadName="main"))
    handler.close()

    assert written(path) == [(key, "text")]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", "00000000"), ("http-nio-8080-exec-1", "9be580f4"), ("Grüße 🎉", "188efb16")],
)
def test_names_are_hashed_as_java_does(text: str, hashed: str) -> None:
    assert java_hash(text).hex() == hashed


def test_the_host_decides_the_key_of_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "main")
    handler = KafkaHandler("logs", keying="host", embedded_path=path)

    handler.handle(event())
    handler.close()

    assert written(path) == [(bytes.fromhex("003305b9"), "text")]


def test_sixty_events_without_a_key_reach_both_partitions(path: Path) -> None:
    handler = KafkaHandler("logs", keying="none", embedded_path=path)

    for _ in range(60):
        handler.handle(event())
    handler.close()

    log = open_log(StreamsConfig(embedded_path=path))
    assert all(log.end_offsets([TopicPartition("logs", 0), TopicPartition("logs", 1)]).values())
    log.close()


def test_json_has_the_fields_of_all_providers() -> None:
    formatter = JsonFormatter(
        constants={"appName": "testdata", "appVersion": "1.0"},
        context={"browserHash": browser, "absent": ContextVar("absent")},
    )
    record = event(
        msg="%(product)s was viewed",
        args={"product": 7},
        created=1.5,
        threadName="main",
        markers=["AUDIT"],
        day=date(2026, 1, 31),
    )

    browser.set("XXXYXXXY0")
    with log_context(user="ann", level="never"), log_context(visit=2):
        text = formatter.format(record)

    assert list(json.loads(text).items()) == [
        ("@timestamp", "1970-01-01T00:00:01.500Z"),
        ("@version", "1"),
        ("level", "INFO"),
        ("logger_name", "shop"),
        ("appName", "testdata"),
        ("appVersion", "1.0"),
        ("thread_name", "main"),
        ("message", "7 was viewed"),
        ("user", "ann"),
        ("visit", 2),
        ("browserHash", "XXXYXXXY0"),
        ("tags", ["AUDIT"]),
        ("product", 7),
        ("day", "2026-01-31"),
    ]


def test_json_has_the_exception_and_the_stack() -> None:
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError as error:
        record = event(exc_info=(type(error), error, error.__traceback__), stack_info="Stack:")

    trace = json.loads(JsonFormatter(["stack_trace"]).format(record))["stack_trace"]

    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("ZeroDivisionError: by zero\nStack:")


def test_chosen_providers_are_the_only_ones() -> None:
    formatter = JsonFormatter(["message", "markers"])

    texts = [formatter.format(event()), formatter.format(event(markers="A", other=1))]

    assert texts == ['{"message":"text"}', '{"message":"text","tags":["A"]}']


def test_a_field_that_json_cannot_hold_becomes_text() -> None:
    formatter = JsonFormatter(["message", "arguments"])
    circle: list[Any] = []
    circle.append(circle)

    found = json.loads(formatter.format(event(circle=circle, odd="\ud800", pair={(1, 2): 3})))

    assert found == {
        "message": "text",
        "circle": "[[...]]",
        "odd": "'\\ud800'",
        "pair": {"(1, 2)": 3},
    }


def test_fields_of_the_context_belong_to_one_thread() -> None:
    formatter = JsonFormatter(["context"])
    found: list[str] = []

    with log_context(user="ann"):
        thread = threading.Thread(target=lambda: found.append(formatter.format(event())))
        thread.start()
        thread.join()
        found.append(formatter.format(event()))
    found.append(formatter.format(event()))

    assert found == ["{}", '{"user":"ann"}', "{}"]


def test_dict_config_makes_handler_formatter_and_fallback(path: Path) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "json": {
                    "()": "headrace.clients.JsonFormatter",
                    "providers": ["logger", "constants", "message", "context"],
                    "constants": {"appName": "testdata"},
                    "context": {"browserHash": f"{__name__}:browser"},
                }
            },
            "handlers": {
                "kafka": {
                    "class": "headrace.clients.KafkaHandler",
                    "topic": "small",
                    "formatter": "json",
                    "config": {"embedded.path": str(path), "batch.size": "16384"},
                    "keying": f"{__name__}:by_level",
                    "delivery": "blocking",
                    "fallback": "console",
                },
                "console": {"()": f"{__name__}.Remembering"},
            },
            "loggers": {"shop.views": {"level": "INFO", "handlers": ["kafka"], "propagate": False}},
        }
    )
    logger = logging.getLogger("shop.views")
    (handler,) = logger.handlers
    assert isinstance(handler, KafkaHandler)
    browser.set("XXXYXXXY4")

    logger.info("viewed %d", 7)
    logger.info("x" * 5_000)

    ((key, value),) = written(path, "small")
    assert key == b"INFO"
    assert json.loads(value) == {
        "logger_name": "shop.views",
        "appName": "testdata",
        "message": "viewed 7",
        "browserHash": "XXXYXXXY4",
    }
    assert isinstance(handler._fallback, Remembering)
    assert handler._fallback.got == ["x" * 5_000]


def test_the_fallback_gets_what_was_refused_later(path: Path) -> None:
    fallback = Remembering()
    handler = KafkaHandler("small", embedded_path=path, fallback=fallback)

    for text in ("short", "x" * 5_000, "last"):
        handler.handle(event(msg=text))
    handler.close()

    assert [value for _, value in written(path, "small")] == ["short", "last"]
    assert fallback.got == ["x" * 5_000]


@pytest.mark.parametrize("delivery", ["asynchronous", "blocking"])
def test_without_a_fallback_a_refusal_is_printed_as_logging_does(
    path: Path, capsys: pytest.CaptureFixture[str], delivery: Any
) -> None:
    handler = KafkaHandler("small", embedded_path=path, delivery=delivery)

    handler.handle(event(msg="x" * 5_000))
    handler.close()

    assert "RecordRefusedError" in capsys.readouterr().err


def test_the_fallback_gets_what_finds_no_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fallback = Remembering()
    handler = KafkaHandler("logs", embedded_path=path, fallback=fallback)

    def send(*_: Any, **__: Any) -> None:
        raise BufferExhaustedError(0.01)

    with monkeypatch.context() as patch:
        patch.setattr(handler._producer, "send", send)
        handler.handle(event())
    handler.close()

    assert fallback.got == ["text"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"keying": "colour"}, 'Use "none", "host", "thread", "logger", "context", a function'),
        ({"keying": "no.such:name"}, "`keying` is 'no.such:name', which cannot be imported"),
        ({"delivery": "late"}, 'Use "asynchronous" or "blocking".'),
        ({"fallback": "nobody"}, "`fallback` is 'nobody', but no handler has this name yet."),
    ],
)
def test_wrong_arguments_of_the_handler_are_refused(
    path: Path, arguments: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        KafkaHandler("logs", embedded_path=path, **arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"providers": ["colour"]}, "no provider 'colour'. The providers are: timestamp, version"),
        ({"context": {"a": "no.such:name"}}, "which cannot be imported"),
        ({"context": {"a": f"{__name__}:by_level"}}, "Use a `ContextVar`"),
    ],
)
def test_wrong_arguments_of_the_formatter_are_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        JsonFormatter(**arguments)
