"""The output does not depend on how the input is cut into batches, nor on replays."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import pytest

from headrace import JoinWindows, KStream, Serdes, StreamsBuilder, StreamsConfig, TimeWindows
from headrace.brokers import open_log
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.log import TopicPartition
from headrace.config import Settings
from headrace.records import ConsumerRecord, Headers
from headrace.runtime.program import Program, Row
from headrace.runtime.run_files import BatchResult
from headrace.serdes.partitioner import partition_for_key
from tests.runtime.in_process import InProcessQuery
from tests.runtime.random_cuts import RandomShares

Build = Callable[[StreamsBuilder], None]


def numbers(builder: StreamsBuilder, topic: str) -> KStream[str, int]:
    return builder.stream(topic, key=str, value=int)


def stream_table_join(builder: StreamsBuilder) -> None:
    table = builder.table("b", key=str, value=int)
    numbers(builder, "a").left_join(table, lambda v, t: f"{v}/{t}", value=str).to("out")


def stream_stream_join(builder: StreamsBuilder) -> None:
    left, right = numbers(builder, "a"), numbers(builder, "b")
    left.outer_join(right, lambda v, w: f"{v}/{w}", JoinWindows(20), value=str).to("out")


def repartitioned_join(builder: StreamsBuilder) -> None:
    moved = numbers(builder, "a").select_key(lambda _k, v: f"k{v % 5}", key=str)
    table = builder.table("b", key=str, value=int)
    moved.join(table, lambda v, t: f"{v}/{t}", value=str).to("out")


def windowed_count(builder: StreamsBuilder) -> None:
    both = numbers(builder, "a").merge(numbers(builder, "b"))
    counts = both.group_by_key().windowed_by(TimeWindows(50, grace=10)).count()
    counted = counts.to_stream().map(
        lambda w, n: (f"{w.key}@{w.window.start}", n), key=str, value=int
    )
    counted.to("out")


TOPOLOGIES = [stream_table_join, stream_stream_join, repartitioned_join, windowed_count]


def two_repartitions(builder: StreamsBuilder) -> None:
    source = numbers(builder, "a")
    even = source.filter(lambda _, v: v % 2 == 0 or v < 60).repartition(name="even")
    odd = source.filter(lambda _, v: v % 2 == 1 and v >= 60).repartition(name="odd")
    joined = even.outer_join(odd, lambda v, w: f"{v}/{w}", JoinWindows(20), value=str)
    joined.left_join(builder.table("b", key=str, value=int), lambda v, t: f"{v}/{t}", value=str).to(
        "out"
    )


def query(
    build: Build,
    folder: Path,
    *,
    partitions: int = 2,
    seed: int = 0,
    **settings: Unpack[Settings],
) -> InProcessQuery:
    """Return a query on topics that hold 120 records of ten keys each, at random times."""
    builder = StreamsBuilder()
    build(builder)
    folder.mkdir()
    log = open_log(StreamsConfig(application_id="application", state_dir=folder))
    chance = random.Random(7)
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=partitions)
        time = 0
        for number in range(120):
            time += chance.randrange(8)
            key = b"k%d" % chance.randrange(10)
            stamp = max(1, time - chance.randrange(15))
            partition = partition_for_key(key, partitions)
            log.append([(topic, partition, stamp, key, number.to_bytes(8, "big"), None)])
    log.close()
    settings.setdefault("statestore_cache_max_bytes", 0)
    return InProcessQuery(builder.build(), folder, seed=seed, **settings)


def written(query: InProcessQuery, topic: str = "out") -> list[list[ConsumerRecord]]:
    log = query.log
    names = [TopicPartition(topic, p) for p in range(log.partition_count(topic))]
    ends = log.end_offsets(names)
    return [[record for some in log.read(name, 0, ends[name]) for record in some] for name in names]


def by_key(partitions: list[list[ConsumerRecord]]) -> dict[bytes | None, list[tuple[int, object]]]:
    records_by_key: dict[bytes | None, list[tuple[int, object]]] = {}
    for records in partitions:
        for record in records:
            records_by_key.setdefault(record.key, []).append((record.timestamp, record.value))
    return records_by_key


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def limit(records: int) -> None:
        monkeypatch.setattr("headrace.runtime.planning.admission.FIRST_RECORDS", records)
        monkeypatch.setattr("headrace.runtime.planning.admission.FIRST_TABLE_RECORDS", records)
        monkeypatch.setattr("headrace.runtime.planning.admission.MIN_RECORDS", 1)
        monkeypatch.setattr("headrace.runtime.planning.admission._STEP", 1)

    return limit


@pytest.mark.parametrize("build", TOPOLOGIES)
@pytest.mark.parametrize("size", [3, 10, 31])
def test_small_batches_write_the_same_as_one_large_batch(
    tmp_path: Path, build: Build, size: int, small_batches: Callable[[int], None]
) -> None:
    # The order of two writers of a repartition is random in Kafka too, so there is one writer.
    partitions = 1 if build is repartitioned_join else 2
    large = query(build, tmp_path / "large", partitions=partitions)
    large.run()

    small_batches(size)
    small = query(build, tmp_path / "small", partitions=partitions)
    small.run()

    assert large.batches <= 3
    # The first batch may have as many records of a table on top.
    assert small.batches >= (240 - size) // max(size, 4)
    assert by_key(written(small)) == by_key(written(large))


@pytest.mark.parametrize("build", [*TOPOLOGIES, two_repartitions])
@pytest.mark.parametrize("seed", range(4))
def test_a_bound_of_buffered_records_changes_no_output(
    tmp_path: Path, build: Build, seed: int
) -> None:
    partitions = 1 if build in (repartitioned_join, two_repartitions) else 2
    unbounded = query(build, tmp_path / "unbounded", partitions=partitions)
    unbounded.run()
    chance = random.Random(seed)

    bounded = query(
        build,
        tmp_path / "bounded",
        partitions=partitions,
        seed=seed,
        buffered_records_per_partition=chance.randint(1, 9),
        max_task_idle=chance.choice([0, 5_000]),
    )
    shares: Any = RandomShares(seed)
    bounded.planner._admission = shares
    most = 0
    for clock in range(1_000_000, 1_400_000, 10_000):
        bounded.set_clock(clock)
        while bounded.batch():
            reports = bounded.run_files.read(BatchResult).reports
            most = max(most, *(report.held for report in reports))

    assert most > 0 or build is windowed_count
    assert bounded.position.offsets == unbounded.position.offsets
    assert by_key(written(bounded)) == by_key(written(unbounded))


@pytest.mark.parametrize("build", TOPOLOGIES)
def test_the_order_in_which_spark_brings_rows_does_not_matter(tmp_path: Path, build: Build) -> None:
    one, other = (query(build, tmp_path / str(seed), seed=seed) for seed in (1, 2))

    for each in (one, other):
        each.run()

    assert written(one) == written(other)


@pytest.mark.parametrize("build", TOPOLOGIES)
def test_a_replayed_batch_writes_nothing_and_leaves_the_same_state(
    tmp_path: Path, build: Build, small_batches: Callable[[int], None]
) -> None:
    small_batches(40)
    running = query(build, tmp_path / "query")
    batches = 0

    while True:
        start, before = running.position, copy.deepcopy(running._blobs)
        if not running.batch():
            break
        batches += 1
        output = written(running)
        state = {grouping_key: dict(blobs.blobs) for grouping_key, blobs in running._blobs.items()}
        running._blobs.clear()
        running._blobs.update(before)
        running.batches -= 1
        running.replay(start, running.position)
        running.batches += 1
        again = {grouping_key: dict(blobs.blobs) for grouping_key, blobs in running._blobs.items()}
        assert written(running) == output
        assert again == state

    assert batches > 3


def test_records_that_wait_for_another_input_are_buffered_in_the_task_s_state(
    tmp_path: Path, small_batches: Callable[[int], None]
) -> None:
    small_batches(4)
    running = query(stream_table_join, tmp_path / "query")
    buffered = []

    while running.batch():
        buffered.append(sum(report.held for report in running.run_files.read(BatchResult).reports))

    assert max(buffered) > 0
    assert buffered[-1] == 0


def test_buffered_records_are_not_committed(
    tmp_path: Path, small_batches: Callable[[int], None]
) -> None:
    small_batches(20)
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    table = builder.table("table", key=str, value=str)
    stream.left_join(table, lambda left, right: f"{left}{right}", value=str).to("joined")
    log = EmbeddedLog(tmp_path / "topics.db")
    for topic in ("stream", "table", "joined"):
        log.create_topic(topic)
    for topic, step in (("stream", 10), ("table", 1)):
        log.append([(topic, 0, 1 + step * n, b"k", b"%d" % n, None) for n in range(1_000 // step)])
    running = InProcessQuery(builder.build(), tmp_path, statestore_cache_max_bytes=0)
    stream_end, joined_end = TopicPartition("stream", 0), TopicPartition("joined", 0)
    joined, committed, read = [0], [0], [0]

    while running.batch():
        joined.append(log.end_offsets([joined_end])[joined_end])
        read.append(running.position.offsets["stream"][0])
        offset = log.committed_offsets("application").get(stream_end)
        committed.append(0 if offset is None else offset.offset)

    assert any(processed < there for processed, there in zip(joined, read, strict=True))
    # The planner commits a batch when it plans the next one.
    assert committed[1:] == joined[:-1]


@pytest.mark.parametrize("repartitioned", [False, True])
def test_few_records_are_buffered_however_far_one_input_is_ahead(
    tmp_path: Path,
    small_batches: Callable[[int], None],
    *,
    repartitioned: bool,
) -> None:
    small_batches(20)
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    if repartitioned:
        stream = stream.repartition(name="again")
    table = builder.table("table", key=str, value=str)
    stream.left_join(table, lambda left, right: f"{left}{right}", value=str).to("joined")
    log = EmbeddedLog(tmp_path / "topics.db")
    for topic in ("stream", "table", "joined"):
        log.create_topic(topic)
    # The table was loaded long after the stream was written, or long before.
    early, late = ("table", "stream") if repartitioned else ("stream", "table")
    for topic, first in ((early, 1), (late, 1_000_000)):
        log.append(
            [(topic, 0, first + number, b"k", b"%d" % number, None) for number in range(300)]
        )
    running = InProcessQuery(
        builder.build(), tmp_path, statestore_cache_max_bytes=0, buffered_records_per_partition=1
    )
    buffered = []

    while running.batch():
        buffered.append(sum(report.held for report in running.run_files.read(BatchResult).reports))

    joined = [record for some in log.read(TopicPartition("joined", 0), 0, 999) for record in some]
    last = b"299" if repartitioned else b"None"
    assert [record.value for record in joined] == [b"%d%s" % (n, last) for n in range(300)]
    assert 0 < max(buffered) <= 20
    assert buffered[-1] == 0


def test_records_of_several_payloads_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.tasks.task_run._BYTES_PER_PAYLOAD", 250)
    builder = StreamsBuilder()
    (
        builder.stream("in", key=str, value=int)
        .group_by_key()
        .reduce(lambda _, value: value)
        .to_stream()
        .to("out")
    )
    log = EmbeddedLog(tmp_path / "topics.db")
    log.create_topic("in")
    serde = Serdes.long()
    log.append([("in", 0, 1, b"k", serde.serialize(number), None) for number in range(9)])
    query = InProcessQuery(builder.build(), tmp_path, statestore_cache_max_bytes=0)

    query.run()

    written = [record for some in log.read(TopicPartition("out", 0), 0, 99) for record in some]
    assert [serde.deserialize(record.value or b"") for record in written] == list(range(9))


def test_no_row_is_large_although_keys_and_headers_of_records_are(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=bytes, value=bytes)
        .map(lambda key, _: (key[:1], key), key=bytes, value=bytes)
        .group_by_key()
        .reduce(lambda _, value: value, materialized="last")
        .to_stream()
        .to("out")
    )
    log = EmbeddedLog(tmp_path / "topics.db")
    log.create_topic("in")
    log.create_topic("out")
    headers = Headers([("h", bytes(200_000))] * 4)
    log.append([("in", 0, 1, b"%d" % number, b"", headers) for number in range(20)])
    log.append([("in", 0, 1, bytes(900_000), b"", None)] * 20)
    query = InProcessQuery(builder.build(), tmp_path, statestore_cache_max_bytes=0)
    sizes: list[int] = []
    make_row = Program.row

    def measured(program: Program, *where: Any, **options: Any) -> Row:
        row = make_row(program, *where, **options)
        sizes.append(len(row[-1]))
        return row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "row", measured)
        query.run()

    assert sum(sizes) > 60_000_000
    assert max(sizes) < 9_000_000


def test_rows_pass_to_later_stages_under_several_grouping_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark takes 2 GB of one grouping key, and a step may make more of a batch."""
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=str, value=int)
    numbers.to("copy")
    by_parity = numbers.group_by(lambda _, value: str(value % 2), key=str).count()
    by_parity.to_stream().group_by(lambda _, count: str(count), key=str).count().to_stream().to(
        "out"
    )
    log = EmbeddedLog(tmp_path / "topics.db")
    for topic in ("in", "copy", "out"):
        log.create_topic(topic)
    log.append([("in", 0, 1, b"k", number.to_bytes(8, "big"), None) for number in range(2_000)])
    monkeypatch.setattr("headrace.runtime.program._BYTES_PER_RELAY_KEY", 1)
    monkeypatch.setattr("headrace.runtime.tasks.task_run._BYTES_PER_PAYLOAD", 1_000)
    keys: set[int] = set()
    relayed = Program.relayed

    def seen(program: Program, *where: Any) -> Row:
        row = relayed(program, *where)
        keys.add(row[0])
        return row

    monkeypatch.setattr(Program, "relayed", seen)

    query = InProcessQuery(builder.build(), tmp_path, statestore_cache_max_bytes=0)
    query.run()

    assert [raw.value for raw in written(query, "copy")[0]] == [
        number.to_bytes(8, "big") for number in range(2_000)
    ]
    assert len(keys & set(query.program.relay_keys[0])) > 10
