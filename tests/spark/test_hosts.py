"""One program behaves the same on the test driver, on Spark with the embedded log, and on Kafka."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from headrace import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)
from headrace.examples.feeding import Encoding, FeedRecord
from headrace.examples.orders import app as orders_app
from headrace.examples.orders import feed as orders_feed
from tests.kafka_broker import RunningBroker
from tests.spark.hosts import HOSTS, Given, OnDriver, ProgramHost, Seen, host_on

MEGABYTE = 1_000_000


class Numbered(Processor[str, str, str, str]):
    """Numbers records in the order in which they come, and tells how far stream time is."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")
        context.schedule("10ms", PunctuationType.STREAM_TIME, self.tell)

    def process(self, record: Record[str, str]) -> None:
        number = (self.seen.get(record.key) or 0) + 1
        self.seen.put(record.key, number)
        self.context.forward(record.with_value(f"{number}:{record.value}"))

    def tell(self, timestamp: int) -> None:
        self.context.forward(Record("punctuated", str(timestamp), timestamp))


class Ticking(Processor[str, str, str, str]):
    """Forwards every second what it has seen."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.seen = context.get_state_store("ticks-seen")
        context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self.tell)

    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.key, record.value)

    def tell(self, timestamp: int) -> None:
        for key, value in self.seen.all():
            self.context.forward(Record(key, value, timestamp))


class Plus(Processor[str, str, str, str]):
    """Adds a header."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_headers(record.headers.adding("seen", b"yes")))


def look_up(known: dict[str, str], _key: str, value: str, _before: str) -> str:
    return f"{value} is {len(known[value])} long"


def several_programs() -> Topology:
    """Return programs that have nothing to do with each other; each has topics of its own."""
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("seen", str, int))
    builder.stream(["left", "right"], key=str, value=str).process(
        Numbered, stores=["seen"], key=str, value=str
    ).to("numbered")

    builder.add_state_store(Stores.key_value("ticks-seen", str, str))
    builder.stream("ticks", key=str, value=str).process(
        Ticking, stores=["ticks-seen"], key=str, value=str
    ).to("ticked")

    rates = builder.global_table("rates", key=str, value=str)
    builder.stream("sales", key=str, value=str).left_join(
        rates, lambda sale, rate: f"{sale}*{rate}", on=lambda _, sale: sale, value=str
    ).to("rated")

    builder.stream("first", key=str, value=str).map_values(str.upper, value=str).to("middle")
    builder.stream("middle", key=str, value=str).group_by_key().count(
        materialized="middle-counts"
    ).to_stream().to("counted")

    builder.stream("plain", key=str, value=str).process(Plus, key=str, value=str).to("headed")
    builder.table("changes", key=str, value=str, materialized="changes").to_stream().to("changed")
    builder.stream("stamped", key=str, value=str).to("stamps")
    builder.stream(re.compile(r"log-\w+"), key=str, value=str).to("logged")
    builder.stream("growing", key=str, value=str).to("grown")
    builder.stream("large", key=str, value=bytes).to("larger")
    known = {f"key-{number}": "x" * 40 for number in range(100_000)}
    builder.stream("asked", key=str, value=str).group_by_key().aggregate(
        str, partial(look_up, known), materialized="looked-up"
    ).to_stream().to("answered")
    return builder.build()


READ = ("left", "right", "ticks", "rates", "sales", "first", "middle", "plain", "changes",
        "log-a", "growing", "large", "asked")  # fmt: skip
WRITTEN = ("numbered", "ticked", "rated", "counted", "headed", "changed", "stamps", "logged",
           "grown", "larger", "answered")  # fmt: skip


@pytest.fixture(scope="module", params=HOSTS)
def programs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProgramHost]:
    """Programs that run together, so that many tests need one start."""
    host = host_on(request.param, request, tmp_path_factory.mktemp("programs"))
    host.create_topics(*READ, *WRITTEN)
    host.create_topics("stamped", settings={"message.timestamp.type": "LogAppendTime"})
    host.start(
        several_programs(),
        statestore_cache_max_bytes=0,
        producer={"compression.type": "zstd"},
    )
    yield host
    host.close()


def test_inputs_are_merged_by_timestamp_and_stream_time_punctuates(programs: ProgramHost) -> None:
    programs.pipe(
        Given("left", b"k", b"l1", 1),
        Given("right", b"k", b"r2", 2),
        Given("left", b"k", b"l3", 3),
        Given("right", b"k", b"r15", 15),
        Given("left", b"k", b"l18", 18),
        Given("left", b"k", b"l30", 30),
    )

    seen = programs.read("numbered", 9)
    numbered = [each.value for each in seen if each.key == b"k"]
    assert numbered == [b"1:l1", b"2:r2", b"3:l3", b"4:r15", b"5:l18", b"6:l30"]
    punctuated = [each.value for each in seen if each.key == b"punctuated"]
    assert punctuated == [b"1", b"15", b"30"]


def test_the_clock_punctuates_without_records(programs: ProgramHost) -> None:
    programs.pipe(Given("ticks", b"k", b"v", 5))

    programs.advance(1000)
    first = programs.read("ticked", 1)
    programs.advance(1000)
    second = programs.read("ticked", 1)

    assert [each[:2] for each in first] == [(b"k", b"v")]
    assert [each[:2] for each in second] == [(b"k", b"v")]
    assert second[0].timestamp - first[0].timestamp == 1000


def test_global_tables_are_looked_up_by_every_task(programs: ProgramHost) -> None:
    programs.pipe(Given("rates", b"eur", b"2", 1), Given("rates", b"usd", b"3", 1))
    programs.pipe(*(Given("sales", b"k%d" % n, b"eur", 10) for n in range(4)))
    programs.pipe(Given("rates", b"eur", None, 20))
    programs.pipe(Given("sales", b"k9", b"eur", 30), Given("sales", b"k9", b"usd", 31))

    seen = [each[:2] for each in programs.read("rated", 6)]
    assert seen == [
        *((b"k%d" % n, b"eur*2") for n in range(4)),
        (b"k9", b"eur*None"),
        (b"k9", b"usd*3"),
    ]


def test_a_topic_is_written_and_read_back(programs: ProgramHost) -> None:
    programs.pipe(Given("first", b"a", b"x", 1), Given("first", b"b", b"y", 2))
    programs.pipe(Given("first", b"a", b"z", 3))

    middle = [each[:3] for each in programs.read("middle", 3)]
    counted = [
        (each.key, int.from_bytes(each.value or b"")) for each in programs.read("counted", 3)
    ]
    assert middle == [(b"a", b"X", 1), (b"a", b"Z", 3), (b"b", b"Y", 2)]
    assert counted == [(b"a", 1), (b"a", 2), (b"b", 1)]


def test_headers_timestamps_and_missing_keys_and_values_are_kept(programs: ProgramHost) -> None:
    programs.pipe(
        Given("plain", b"a", "ä".encode(), 1_700_000_000_001, [("h", b"1"), ("h", None)]),
        Given("plain", b"a", None, 1_700_000_000_002),
        Given("plain", None, b"", 1_700_000_000_003),
    )

    own = ("seen", b"yes")
    assert programs.read("headed", 3) == [
        Seen(None, b"", 1_700_000_000_003, (own,)),  # type: ignore[arg-type]  # equal to headers
        Seen(b"a", "ä".encode(), 1_700_000_000_001, (("h", b"1"), ("h", None), own)),  # type: ignore[arg-type]
        Seen(b"a", None, 1_700_000_000_002, (own,)),  # type: ignore[arg-type]
    ]


def test_tombstones_delete_from_a_table_and_are_passed_on(programs: ProgramHost) -> None:
    programs.pipe(
        Given("changes", b"a", b"1", 1),
        Given("changes", b"a", None, 2),
        Given("changes", b"b", None, 3),
        Given("changes", b"a", b"2", 4),
    )

    seen = [each[:3] for each in programs.read("changed", 4)]
    assert seen[:3] == [(b"a", b"1", 1), (b"a", None, 2), (b"a", b"2", 4)]
    assert all(each[:2] == (b"b", None) for each in seen[3:])


def test_the_log_s_own_time_is_the_record_s_time(programs: ProgramHost) -> None:
    programs.pipe(Given("stamped", b"k", b"v", 1_000))

    (seen,) = programs.read("stamps", 1)
    if isinstance(programs, OnDriver):
        assert seen.timestamp == 1_000
    else:
        assert seen.timestamp > 1_700_000_000_000


def test_records_of_a_megabyte_are_read_and_written(programs: ProgramHost) -> None:
    large = bytes(range(250)) * (MEGABYTE // 250)

    programs.pipe(Given("large", b"k", large, 1))

    (seen,) = programs.read("larger", 1)
    assert seen.value == large


@pytest.mark.parametrize("programs", ["kafka"], indirect=True, scope="module")
def test_a_function_may_hold_megabytes(programs: ProgramHost) -> None:
    programs.pipe(Given("asked", b"a", b"key-7", 10))

    assert programs.read("answered", 1) == [Seen(b"a", b"key-7 is 40 long", 10)]


def test_records_for_kafka_are_compressed(programs: ProgramHost, kafka: RunningBroker) -> None:
    large = b"compress me" * 50_000

    def size_on_disk() -> int:
        files = Path(kafka.properties["log.dirs"]).glob("larger-*/*.log")
        return sum(path.stat().st_size for path in files)

    before = size_on_disk()
    programs.pipe(Given("large", b"other", large, 2))

    (seen,) = programs.read("larger", 1)
    assert seen.value == large
    assert size_on_disk() - before < len(large) // 10


def test_new_topics_that_match_and_new_partitions_are_read(programs: ProgramHost) -> None:
    programs.pipe(Given("log-a", b"a", b"1", 1), Given("growing", b"k1", b"1", 1))
    programs.create_topics("log-b", partitions=3)
    programs.grow_topic("growing", 5)
    programs.pipe(
        *(Given("log-b", b"b%d" % n, b"2", 2) for n in range(4)),
        *(Given("growing", b"k%d" % n, b"2", 2) for n in range(2, 9)),
    )

    logged = [each[:2] for each in programs.read("logged", 5)]
    grown = [each[:2] for each in programs.read("grown", 8)]
    assert logged == [(b"a", b"1"), *((b"b%d" % n, b"2") for n in range(4))]
    assert grown == [(b"k1", b"1"), *((b"k%d" % n, b"2") for n in range(2, 9))]


def test_the_orders_example_writes_every_output(
    host: ProgramHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "headrace")  # a bad record is logged
    app = orders_app.app
    kinds = ("general", "restaurant")
    parts = ("count", "revenue", "count-windows", "revenue-windows")
    outputs = (*(f"{kind}-orders-{part}" for kind in kinds for part in parts), "orders-dead")
    host.create_topics("stores", "orders", "general_orders", "restaurant_orders", *outputs)
    given = {**app.config.given, "application_id": "orders", "statestore_cache_max_bytes": 0}

    host.start(app.topology, **given)
    host.advance(int(DAY.timestamp() * 1000))  # the example refuses orders of the future
    host.pipe(*map(given_from, (orders_feed.store(place, 1) for place in ("s1", "s2"))))
    host.pipe(
        order(1, "s1", 27, "GENERAL", 0),
        order(2, "s1", 15, "RESTAURANT", 4),
        order(3, "s2", 10, "GENERAL", 9),
        Given("orders", b"9", b"{not json", 10_000),
        order(4, "s1", 13, "GENERAL", 14),
        order(5, "s1", 40, "GENERAL", 36),
    )
    host.pipe(order(6, "s1", 1, "GENERAL", 12), order(7, "s3", 5, "GENERAL", 37))

    revenue = [
        (each.key, float(json.loads(each.value or b"")["totalRevenue"]["runningRevenue"]))
        for each in host.read("general-orders-revenue", 5)
    ]
    assert revenue == [(b"s1", 27.0), (b"s1", 40.0), (b"s1", 80.0), (b"s1", 81.0), (b"s2", 10.0)]
    (restaurant,) = host.read("restaurant-orders-revenue", 1)
    assert json.loads(restaurant.value or b"")["store"]["address"]["city"] == "City1"
    windows = [
        (each.key and each.key[:2], each.value and int.from_bytes(each.value))
        for each in host.read("general-orders-count-windows", 5)
    ]
    assert windows == [(b"s1", 1), (b"s1", 2), (b"s1", 1), (b"s2", 1), (b"s3", 1)]
    assert len(host.read("general_orders", 6)) == 6
    closed = [
        (each.key and each.key[:2], float(json.loads(each.value or b"")["runningRevenue"]))
        for each in host.read("general-orders-revenue-windows", 2)
    ]
    assert closed == [(b"s1", 40.0), (b"s2", 10.0)]
    late, broken = sorted(host.read("orders-dead", 2), key=lambda each: each.key or b"")
    assert (broken.key, broken.value) == (b"9", b"{not json")
    assert broken.headers.last("__streams.errors.topic") == b"orders"
    assert b"late" in (late.headers.last("__streams.errors.message") or b"")


DAY = datetime(2026, 1, 5, 8, tzinfo=UTC)


def order(number: int, place: str, amount: int, kind: str, second: int) -> Given:
    at = DAY.replace(second=second)
    items = [("Thing", 1, f"{amount}.00")]
    return given_from(orders_feed.order(number, place, items, at, kind=kind))


def given_from(record: FeedRecord) -> Given:
    topic, _, timestamp, key, value, _ = Encoding(orders_app.app).raw(record)
    return Given(topic, key, value, timestamp)
