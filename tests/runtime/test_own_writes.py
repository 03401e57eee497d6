"""A snapshot that reflects a record has it in its stores, also while a join holds records back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace import Materialized, StreamsBuilder, StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.dsl.kstream import KStream
from headrace.queries.client import QueryClient
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.service import QueryService
from headrace.records import RecordMetadata
from headrace.runtime.checkpoint.batch_log import unfinished_batch
from headrace.runtime.output.batch_writer import BatchWriter
from headrace.runtime.snapshots import SnapshotRecord, is_reflected
from headrace.serdes.partitioner import partition_for_key
from tests.effort import examples
from tests.runtime.copied_application import CopiedApplication
from tests.waiting import PATIENTLY, await_that

ORDERS, RATES, SHOPS = "orders", "rates", "shops"
TOPICS = (ORDERS, RATES, SHOPS)
DIRECT, JOINED = "direct", "joined"
KEYS = ("a", "b", "c")
IDLE_MS = 1_000
STEPS = 60
SEEDS = 24


def with_id(_key: str, order: str, ids: str) -> str:
    """Return the orders of a key, with one more."""
    return f"{ids}{order} "


def collected(stream: KStream[str, str], store: str) -> None:
    stream.group_by_key().aggregate(str, with_id, materialized=Materialized(store))


def joined(stream: KStream[str, str], builder: StreamsBuilder, table: str) -> KStream[str, str]:
    other = builder.table(table, key=str, value=str)
    return stream.join(other, lambda order, _: order, value=str)


def behind_a_join(orders: KStream[str, str], builder: StreamsBuilder) -> None:
    collected(joined(orders, builder, RATES), JOINED)


def behind_a_repartition(orders: KStream[str, str], builder: StreamsBuilder) -> None:
    collected(joined(orders.repartition(), builder, RATES), JOINED)


def behind_two_joins(orders: KStream[str, str], builder: StreamsBuilder) -> None:
    first = joined(orders, builder, RATES).repartition()
    collected(joined(first, builder, SHOPS), JOINED)


Program = Callable[[KStream[str, str], StreamsBuilder], None]


def topology(program: Program) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream(ORDERS, key=str, value=str)
    collected(orders, DIRECT)
    program(orders, builder)
    return builder.build()


def started(folder: Path, program: Program, **settings: Any) -> CopiedApplication:
    """Return an application whose tables have every key."""
    config = StreamsConfig(application_id="application").with_settings(state_dir=folder)
    with closing(open_log(config)) as log:
        for topic in TOPICS:
            log.create_topic(topic, partitions=2)
        keys = [(key.encode(), each) for key in KEYS for each in (0, 1)]
        tables = (RATES, SHOPS)
        log.append([(table, each, 1, key, b"1", None) for table in tables for key, each in keys])
    return CopiedApplication(
        folder, topology(program), source=ORDERS, max_task_idle=f"{IDLE_MS}ms", **settings
    )


class DiedError(Exception):
    """The death of a leader."""


class Run:
    """Orders, quiet tables, a clock, deaths: in the order that a seed decides."""

    def __init__(self, seed: int, program: Program, folder: Path) -> None:
        self.chance = Random(seed)  # repeatable
        self.clock = self.time = 1_000_000
        self.application = started(
            folder,
            program,
            buffered_records_per_partition=self.chance.choice([2, 1_000]),
            processing_guarantee=self.chance.choice(["exactly_once_v2", "at_least_once"]),
        )
        self.orders: list[tuple[int, int]] = []
        self.ends = [0, 0]
        self.leader_epoch = 0
        self.held_back = self.seen = 0

    def write(self, topic: str) -> None:
        """Write a record to one partition of an input."""
        partition = self.chance.randrange(2)
        self.time += self.chance.randrange(5)
        value = f"{partition}:{self.ends[partition]}"
        key = self.chance.choice(KEYS).encode()
        self.application.log.append([(topic, partition, self.time, key, value.encode(), None)])
        if topic == ORDERS:
            self.orders.append((partition, self.ends[partition]))
            self.ends[partition] += 1

    def take_over(self) -> None:
        """Start another leader."""
        self.leader_epoch += 1
        self.application.take_over(self.leader_epoch)

    def die(self) -> None:
        """Write a part of a batch and die; the next leader writes the rest."""
        query, batch_log = self.application.query, self.application.batch_log
        query.set_clock(self.clock)
        blobs = deepcopy(query._blobs)
        left = self.chance.randrange(3)
        write: Callable[..., Any] = BatchWriter.write

        def write_and_die(writer: BatchWriter, *arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise DiedError
            return write(writer, *arguments)

        with pytest.MonkeyPatch.context() as dying, suppress(DiedError):
            dying.setattr(BatchWriter, "write", write_and_die)
            query.batch()
        unfinished = unfinished_batch(batch_log)
        if unfinished is None:
            return
        query._blobs = blobs
        self.take_over()
        query, end = self.application.query, batch_log.end_of(unfinished)
        assert end is not None, "planned"
        query.replay(query.position, end)
        batch_log.commit(unfinished)
        query.position, query.batches = end, unfinished + 1
        self.compare_newest()

    def batch(self) -> None:
        """Run a batch, and compare its stores with its snapshot."""
        self.application.query.set_clock(self.clock)
        self.application.query.batch()
        self.compare_newest()

    def compare_newest(self) -> None:
        query = self.application.query
        assert query.planner.snapshots is not None
        record = query.planner.snapshots.last
        if record is not None and record.snapshot == query.batches - 1:
            self.compare(record)

    def compare(self, record: SnapshotRecord) -> None:
        for store in (DIRECT, JOINED):
            entries = self.application.query.store(store).all()
            found = " ".join(orders.value for _, orders in entries).split()
            assert len(found) == len({*found})
            for partition, offset in self.orders:
                if is_reflected(record.position, ORDERS, partition, offset):
                    assert f"{partition}:{offset}" in found, (store, record.position, found)
                    self.seen += 1
                elif f"{partition}:{offset}" not in found:
                    self.held_back += 1

    def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.4:
            self.write(ORDERS)
        elif kind < 0.5:
            self.write(self.chance.choice([RATES, SHOPS]))
        elif kind < 0.65:
            self.clock += self.chance.choice([IDLE_MS // 3, IDLE_MS])
        elif kind < 0.7:
            self.take_over()
        elif kind < 0.75:
            self.die()
        else:
            self.batch()

    def end(self) -> None:
        """Write nothing more: everything is reflected once the idle time is over."""
        for _ in range(8):
            self.clock += IDLE_MS
            self.batch()
        record = self.application.newest()
        assert record.position[ORDERS] == self.ends


@pytest.mark.parametrize("seed", range(examples(SEEDS)))
@pytest.mark.parametrize("program", [behind_a_join, behind_a_repartition, behind_two_joins])
def test_an_own_write_is_in_every_store_of_a_snapshot_that_reflects_it(
    program: Program, seed: int, tmp_path: Path
) -> None:
    run = Run(seed, program, tmp_path)
    with closing(run.application):
        for _ in range(STEPS):
            run.step()
        run.end()

    assert run.seen
    assert run.held_back


def test_a_read_behind_an_own_write_waits_while_a_join_holds_it_back(tmp_path: Path) -> None:
    application = started(tmp_path, behind_a_join)
    clock, partition = 1_000_000, partition_for_key(b"a", 2)
    application.query.set_clock(clock)
    application.run()
    service = QueryService(application.topology, application.query.config, server="127.0.0.1:0")

    with ExitStack() as ends:
        for each in (application, service):
            ends.enter_context(closing(each))
        service.start()
        await_that(service.is_ready, "the service to be ready")
        address = service.url.removeprefix("http://")
        hasty = ends.enter_context(QueryClient(address, timeout="200ms"))
        client = ends.enter_context(QueryClient(address, timeout=PATIENTLY))
        for number in range(3):
            order = RecordMetadata(ORDERS, partition, number)
            value = b"%d" % number
            # The task waits for rates again once it has one.
            application.log.append(
                [
                    (RATES, partition, clock, b"a", b"1", None),
                    (ORDERS, partition, clock + 1, b"a", value, None),
                ]
            )
            application.query.run()
            with pytest.raises(QueryProblemError) as refused:
                hasty.snapshot(after=order).store(JOINED).get("a")
            assert refused.value.code is ProblemCode.NOT_UP_TO_BOUND
            before = "".join(f"{each} " for each in range(number)) or None
            assert client.store(JOINED).get("a") == client.store(DIRECT).get("a") == before

            clock += IDLE_MS
            application.query.set_clock(clock)
            application.query.run()
            view, seen = client.snapshot(after=order), f"{before or ''}{number} "
            assert view.store(JOINED).get("a") == view.store(DIRECT).get("a") == seen
