"""`headrace produce` and `headrace consume`, on both brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.brokers import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.records import ConsumerRecord
from tests.cli.conftest import Cli
from tests.waiting import PATIENCE

TIMEOUT = ("--timeout", f"{PATIENCE:g}s")
READ = ("--from-beginning", *TIMEOUT)


def records_of(log: Broker, topic: str, partition: int = 0) -> list[ConsumerRecord]:
    name = TopicPartition(topic, partition)
    end = log.end_offsets([name])[name]
    return [record for some in log.read(name, 0, end) for record in some]


def test_lines_go_in_and_come_out(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str]
) -> None:
    topic = named("lines")
    cli("topics", "create", topic, *broker_flags)

    wrote = cli("produce", topic, *broker_flags, stdin="ann\thello world\nbob\tbye\n\nno key\n")
    read = cli("consume", topic, *READ, "--max-messages", "3", *broker_flags)

    assert wrote.out == f"Wrote 3 records to {topic!r}.\n"
    assert read.out == "ann\thello world\nbob\tbye\nnull\tno key\n"


def test_a_group_resumes_where_it_was(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str]
) -> None:
    topic, group = named("lines"), named("readers")
    cli("topics", "create", topic, *broker_flags)
    cli("produce", topic, *broker_flags, stdin="a\t1\nb\t2\nc\t3\n")
    words = ["consume", topic, "--group", group, "--print", "value", *broker_flags]

    first = cli(*words, "--from-beginning", "-n", "2", *TIMEOUT)
    second = cli(*words, "--from-beginning", "-n", "1", *TIMEOUT)

    assert (first.out, second.out) == ("1\n2\n", "3\n")


def test_one_record_is_written_with_all_that_belongs_to_it(cli: Cli, log: Broker) -> None:
    log.create_topic("orders", partitions=2)

    done = cli(
        "produce", "orders", "--key", "k", "--value", "v", "-H", "trace=abc", "-H", "empty=",
        "--partition", "1", "--timestamp", "2023-11-14T22:13:20Z", "--output", "json",
    )  # fmt: skip

    assert done.data == {"topic": "orders", "records": 1}
    assert records_of(log, "orders", 1) == [
        ConsumerRecord(
            "orders",
            1,
            0,
            1_700_000_000_000,
            b"k",
            b"v",
            [("trace", b"abc"), ("empty", b"")],  # type: ignore[arg-type]
        )
    ]


def test_a_created_topic_is_reported(cli: Cli, log: Broker) -> None:
    first = cli("produce", "lines", "--value", "v")
    slip = cli("produce", "linse", stdin="a\nb\n")
    again = cli("produce", "linse", "--value", "v")

    assert first.err == "Created topic 'lines' with 1 partition.\n"
    assert slip.out == "Wrote 2 records to 'linse'.\n"
    assert slip.err == "Created topic 'linse' with 1 partition. Did you mean 'lines'?\n"
    assert again.err == ""


def test_a_created_topic_is_reported_in_json_and_not_with_quiet(cli: Cli, log: Broker) -> None:
    done = cli("produce", "a", "--value", "v", "--output", "json")
    quiet = cli("produce", "b", "--value", "v", "--quiet")

    assert done.data == {"topic": "a", "records": 1}
    assert json.loads(done.err) == {"created": "a", "partitions": 1}
    assert (quiet.out, quiet.err) == ("", "")


def test_a_created_topic_is_reported_even_if_a_line_is_wrong(cli: Cli, log: Broker) -> None:
    done = cli("produce", "numbers", "--value-type", "int", stdin="1\nx\n")

    assert done.code == 1
    assert done.err.startswith("Created topic 'numbers' with 1 partition.\nError: Line 2 is not")


def test_a_topic_that_is_not_created_is_not_reported(cli: Cli, log: Broker) -> None:
    nothing = cli("produce", "lines", stdin="")
    refused = cli("produce", "lines", "--value", "v", "--partition", "0")

    assert (nothing.code, nothing.err) == (0, "")
    assert refused.code == 4
    assert "Created" not in refused.err
    assert log.list_topics() == []


def test_a_key_of_all_lines_leaves_lines_whole(cli: Cli, log: Broker) -> None:
    cli("produce", "orders", "--key", "k", stdin="a\tb\n")

    assert [(r.key, r.value) for r in records_of(log, "orders")] == [(b"k", b"a\tb")]


def test_a_text_can_stand_for_null(cli: Cli, log: Broker) -> None:
    cli("produce", "orders", "--null-marker", "NULL", stdin="k\tNULL\n")

    assert records_of(log, "orders")[0].value is None
    assert cli("consume", "orders", *READ, "-n", "1").out == "k\tnull\n"


@pytest.mark.parametrize(
    ("kind", "text", "stored"),
    [
        ("string", "é", "é".encode()),
        ("json", '{"a": [1, null]}', b'{"a":[1,null]}'),
        ("json", '"text"', b'"text"'),
        ("int", "-2", b"\xff\xff\xff\xfe"),
        ("long", "7", b"\0\0\0\0\0\0\0\x07"),
        ("double", "1.5", b"\x3f\xf8\0\0\0\0\0\0"),
        ("bytes", "AAE=", b"\0\x01"),
        ("hex", "00ff", b"\0\xff"),
    ],
)
def test_every_type_is_stored_as_java_does_and_read_again(
    cli: Cli, log: Broker, kind: str, text: str, stored: bytes
) -> None:
    done = cli(
        "produce", "t", "--value-type", kind, "--key-type", kind, "--key", text, "--value", text
    )
    read = cli("consume", "t", *READ, "-n", "1", "--value-type", kind, "--key-type", kind)
    data = cli(
        "consume", "t", *READ, "-n", "1", "--value-type", kind, "--key-type", kind,
        "--output", "json",
    )  # fmt: skip

    assert done.code == 0
    record = records_of(log, "t")[0]
    assert (record.key, record.value) == (stored, stored)
    assert read.out == f"{text}\t{text}\n"
    expected = json.loads(text) if kind not in ("string", "bytes", "hex") else text
    assert data.data["value"] == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "x"),
        ("int", "3000000000"),
        ("json", "{"),
        ("double", ""),
        ("bytes", "*"),
        ("hex", "0"),
    ],
)
def test_a_line_that_is_not_of_its_type_is_named(
    cli: Cli, log: Broker, kind: str, text: str
) -> None:
    log.create_topic("t")
    good = {"int": "1", "json": "1", "double": "1", "bytes": "AA==", "hex": "00"}[kind]

    done = cli("produce", "t", "--value-type", kind, stdin=f"k\t{good}\nk\t{text}\nk\t{good}\n")

    assert done.code == 1
    assert f"Line 2 is not written: {text!r} is no {kind}" in done.err
    assert done.err.endswith(" 1 record before it is.\n")
    assert len(records_of(log, "t")) == 1


def test_chosen_fields_come_before_the_value(cli: Cli, log: Broker) -> None:
    cli("produce", "t", "--key", "k", "--value", "v", "--timestamp", "5", "-H", "a=b")

    done = cli(
        "consume", "t", *READ, "-n", "1",
        "--print", "partition,offset,timestamp,headers,key", "--separator", "|",
    )  # fmt: skip

    assert done.out == "0|0|5|a=b|k|v\n"


def test_json_has_every_field(cli: Cli, log: Broker) -> None:
    cli("produce", "t", "--key", "k", "--value", "v", "--timestamp", "5", "-H", "a=b")

    done = cli("consume", "t", *READ, "-n", "1", "--output", "json")

    assert done.data == {
        "topic": "t", "partition": 0, "offset": 0, "timestamp": 5,
        "key": "k", "value": "v", "headers": [["a", "b"]],
    }  # fmt: skip


def test_bytes_that_do_not_fit_are_shown_and_do_not_end_the_reading(cli: Cli, log: Broker) -> None:
    cli("produce", "t", "--value-type", "hex", stdin="k\tff\nk\t0000000000000001\n")

    text = cli("consume", "t", *READ, "-n", "2", "--value-type", "long")
    data = cli("consume", "t", *READ, "-n", "1", "--value-type", "long", "--output", "json")

    first, second = text.out.splitlines()
    assert first.startswith("k\t<0xff: ")
    assert second == "k\t1"
    assert data.data["value"]["undecodable"] == "ff"


def test_reading_ends_when_nothing_comes(cli: Cli, log: Broker) -> None:
    log.create_topic("t")

    done = cli("consume", "t", "--timeout", "10ms")

    assert (done.code, done.out) == (0, "")


def test_one_partition_can_be_read_alone(cli: Cli, log: Broker) -> None:
    log.create_topic("t", partitions=2)
    for number in ("0", "1"):
        cli("produce", "t", "--value", f"of {number}", "--partition", number)

    done = cli("consume", "t", *READ, "-n", "1", "--partition", "1", "--print", "")

    assert done.out == "of 1\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["consume", "missing"], 4, "no topic 'missing'"),
        (["consume", "t", "--print", "keys"], 2, "`--print` has 'keys'"),
        (
            ["consume", "t", "--timeout", "soon"],
            2,
            "`--timeout` is 'soon', which is not a duration. "
            "Write, for example, `--timeout 1h30m` or `--timeout PT1H30M`.",
        ),
        (["consume", "t", "-g", "g", "--partition", "0"], 2, "`--group` or `--partition`"),
        (["consume", "t", "--partition", "9", "--from-beginning"], 4, "no partition 9"),
        (["produce", "t", "--value", "v", "-H", "x"], 2, "`--header x` is not NAME=VALUE"),
        (["produce", "t", "--separator", ""], 2, "`--separator` is empty. Use at least one"),
        (["produce", "t", "--value", "v", "--timestamp", "noon"], 2, "`--timestamp` is 'noon'"),
        (
            ["produce", "t", "--value", "v", "--timestamp", "2024-01-01"],
            2,
            "no time zone. Write, for example, `--timestamp 2024-01-01T00:00:00Z`.",
        ),
        (["produce", "t", "--value", "v", "-s", "producer.lingr.ms=1"], 2, "`linger`"),
    ],
)
def test_wrong_words_are_named(
    cli: Cli, log: Broker, words: list[str], code: int, said: str
) -> None:
    log.create_topic("t")

    done = cli(*words)

    assert (done.code, said in done.err) == (code, True), done.err


def test_settings_of_a_client_reach_it(cli: Cli, log: Broker) -> None:
    log.create_topic("t")

    done = cli("produce", "t", "--value", "v", "-s", "linger.ms=1", "-s", "producer.acks=all")

    assert done.code == 0


def test_a_record_that_the_broker_refuses_is_reported(cli: Cli, log: Broker) -> None:
    log.create_topic("t", settings={"cleanup.policy": "compact"})

    done = cli("produce", "t", stdin="no key\n")

    assert done.code == 1
    assert "was refused" in done.err


@pytest.mark.parametrize(
    ("handling", "said"),
    [("strict", b"Standard input is not text in UTF-8"), ("surrogateescape", b"Line 2 is not")],
)
def test_input_that_is_no_text_is_named(folder: Path, handling: str, said: bytes) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": f"utf-8:{handling}"}
    command = [sys.executable, "-m", "headrace.cli.main", "produce", "t"]

    done = subprocess.run(
        command,
        input=b"a\tb\n\xff\n",
        capture_output=True,
        cwd=folder,
        env=environment,
        check=False,
    )

    assert done.returncode == 1
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202e\ttab\nline"


def test_control_characters_of_a_record_do_not_reach_the_terminal(cli: Cli, log: Broker) -> None:
    log.create_topic("t")
    cli("produce", "t", "--key", "\x1b[1m", "--value", HOSTILE, "-H", "h=\x1bc")

    text = cli("consume", "t", *READ, "-n", "1", "--print", "key,headers")
    data = cli("consume", "t", *READ, "-n", "1", "--output", "json")

    assert text.out == (
        "\\u001b[1m\th=\\u001bc\t\\u001b]0;owned\\u0007 \\u009b2J \\u202e\ttab\\nline\n"
    )
    assert data.out.rstrip("\n").isprintable()
    assert data.data["value"] == HOSTILE


ORDERS = """
from dataclasses import dataclass

from headrace import KafkaStreams, StreamsBuilder, TimeWindows


@dataclass
class Order:
    id: int
    city: str


builder = StreamsBuilder()
orders = builder.stream("orders", key=int, value=Order)
(
    orders.group_by(lambda _, order: order.city, key=str)
    .windowed_by(TimeWindows("1m"))
    .count()
    .to_stream()
    .to("counts")
)
app = KafkaStreams(builder.build(), application_id="orders-app", embedded_path="other.db")
"""


def test_records_are_decoded_with_the_serdes_of_a_program(cli: Cli, folder: Path) -> None:
    (folder / "shop.py").write_text(ORDERS)
    there = ("--embedded-path", "other.db")
    value = '{"id": 1, "city": "Graz"}'
    cli("produce", "orders", "--key-type", "long", "--key", "7", "--value", value, *there)
    cli("produce", "orders", "--key", "short", "--value", "no order", *there)
    window = "47726170000000000000ea60"
    cli("produce", "counts", "--key-type", "hex", "--key", window, "--value-type", "long",
        "--value", "3", *there)  # fmt: skip
    cli("produce", "others", "--value-type", "hex", "--value", "00ff", *there)

    orders = cli("consume", "orders", *READ, "-n", "2", "--app", "shop.py")
    counts = cli("consume", "counts", *READ, "-n", "1", "--app", "shop.py", "--output", "json")
    others = cli("consume", "others", *READ, "-n", "1", "--app", "shop.py")

    first, second = orders.out.splitlines()
    assert first == '7\t{"id": 1, "city": "Graz"}'
    assert second.startswith("<0x73686f7274: ")
    assert "\t<0x6e6f206f72646572: The data is not JSON" in second
    assert counts.data["key"] == {"key": "Grap", "window": {"start": 60000, "end": 120000}}
    assert counts.data["value"] == 3
    assert others.out == "null\t00ff\n"


PRICES = """
from decimal import Decimal
from msgspec import Struct
from headrace import StreamsBuilder

class Price(Struct):
    amount: Decimal

builder = StreamsBuilder()
builder.stream("prices", key=str, value=Price).to("more-prices")
topology = builder.build()
"""


@pytest.mark.parametrize("output", ["table", "json"])
def test_amounts_keep_their_digits_and_are_numbers(cli: Cli, folder: Path, output: str) -> None:
    (folder / "prices.py").write_text(PRICES)
    cli("produce", "prices", "--key", "k", "--value", '{"amount": 27.00}')
    cli("produce", "prices", "--key", "k", "--value-type", "string", "--value", '{"amount":0.10}')

    done = cli("consume", "prices", *READ, "-n", "2", "--app", "prices.py", "--output", output)

    assert '{"amount": 0.10}' in done.out
