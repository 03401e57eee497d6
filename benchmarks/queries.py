"""Queries against their bars, and beside Kafka Streams' interactive queries, in one run.

``make bench-queries`` runs everything; ``python benchmarks/queries.py --help`` lists the options.
`docs/benchmarks.md` explains the figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.apps.queried_totals import STORE, topology
from benchmarks.dataset import PARTITIONS, location_key
from benchmarks.latency import percentile
from benchmarks.process_tree import own_cpu_seconds
from benchmarks.query_batches import batch_costs
from benchmarks.query_load import Load, Prober, Reader, ask_for_keys, body_of, client_name
from benchmarks.query_report import (
    QueryReport,
    busy_note,
    longest_gap,
    query_table,
    waits,
)
from benchmarks.query_systems import (
    HEADRACE,
    KAFKA_STREAMS,
    Instance,
    QueriedSystem,
    await_copies,
    can_pin,
    pin,
    run_python,
)
from benchmarks.query_writer import PROBE, Leader, Updates, Writer
from benchmarks.report import json_from_report, show_progress, this_machine
from benchmarks.systems import BROKER_JAVA, ROOT, compile_rival
from benchmarks.throughput import RunError
from benchmarks.topics import Topics
from headrace import StreamsConfig
from headrace.serdes.partitioner import partition_for_key
from headrace.testing.kafka.starting import free_ports
from tests.kafka_broker import MissingToolError, RunningBroker, start_broker

PARTS = ("reads", "restore", "kill", "batch")
EVERY_SECONDS = 0.2
"""The time from one transaction to the next."""
WARM_UP_SECONDS = 5.0
KILL_SECONDS = 10.0
"""For how long keys are read after a kill."""
KILL_UPDATES = 1_000
RESTORE = "benchmarks.apps.restore_totals"
LEAST_WAITS = 5
"""How many transactions a figure of freshness needs; a busy machine takes longer for them."""
SEEN_SECONDS = 60.0
SQL_ASKED, SQL_AGGREGATES = 300, 5
INSTANCES = 3


class Benchmark:
    """One run: its options, a broker, and the report."""

    def __init__(self, asked: argparse.Namespace, broker: RunningBroker, folder: Path) -> None:
        self.asked, self.broker, self.folder = asked, broker, folder
        self.topics = Topics(broker.address)
        self.report = QueryReport(
            began=datetime.now(UTC).isoformat(timespec="seconds"),
            keys=asked.keys,
            machine=this_machine(),
            client=client_name(),
        )
        self.cores = sorted(os.sched_getaffinity(0))
        self.failed = False

    def run(self) -> None:
        """Measure everything that was asked for."""
        if "reads" in self.asked.parts or "restore" in self.asked.parts:
            self._try("reads", self._measure_headrace)
        if "batch" in self.asked.parts:
            self._try("batch", self._measure_batches)
        for system in self._systems():
            if "kill" in self.asked.parts:
                self._try("kill", partial(self._measure_kill, system))
        if "reads" in self.asked.parts and not self.asked.alone:
            self._try("reads", self._measure_rival)

    def _try(self, part: str, measure: Callable[[], None]) -> None:
        try:
            measure()
        except RunError as error:
            self.failed = True
            show_progress(f"{part} failed. {error}")

    def _systems(self) -> tuple[QueriedSystem, ...]:
        return (HEADRACE,) if self.asked.alone else (HEADRACE, KAFKA_STREAMS)

    def _config(self, application_id: str) -> StreamsConfig:
        return StreamsConfig(
            application_id=application_id,
            bootstrap_servers=self.broker.address,
            state_dir=self.folder,
        )

    def _start(
        self, system: QueriedSystem, application_id: str, source: str, core: int | None = None
    ) -> Instance:
        address = self.broker.address
        return Instance(system, address, application_id, self.folder, source, core=core)

    def _measure_headrace(self) -> None:
        name, source = "queried", "queried-orders"
        show_progress(f"writing the totals of {self.asked.keys:,} keys")
        leader = Leader(topology(source), self._config(name), source)
        leader.load(self.asked.keys)
        if "restore" in self.asked.parts:
            self._measure_restore(name, source)
            self._measure_peer_restore(name, source, leader)
        if "reads" in self.asked.parts:
            instance = self._start(HEADRACE, name, source, self._server_core())
            try:
                instance.await_transaction(leader.transactions)
                show_progress("SQL")
                self._measure_sql(instance)
                self._measure_reads(instance, leader)
            finally:
                instance.close()
        leader.close()
        self.topics.delete(name)

    def _measure_restore(self, name: str, source: str) -> None:
        show_progress("restore from Kafka")
        arguments = self.broker.address, name, str(self.folder), source
        runs = [run_python(RESTORE, *arguments) for _ in range(self.asked.rounds)]
        found = min(runs, key=lambda run: run["seconds"])
        self.report.add(
            restore_kafka=found["records"] / found["seconds"],
            restore_kafka_cpu=found["cpu_seconds"] / found["records"] * 1e6,
            memory_peak=found["peak_memory_mb"],
        )

    def _measure_peer_restore(self, name: str, source: str, leader: Leader) -> None:
        show_progress("restore from a peer")
        peer = self._start(HEADRACE, name, source)
        try:
            peer.await_transaction(leader.transactions)
            runs = []
            for port in free_ports(self.asked.rounds):
                arguments = self.broker.address, name, str(self.folder), source
                runs.append(run_python(RESTORE, *arguments, f"127.0.0.1:{port}"))
        finally:
            peer.close()
        found = min(runs, key=lambda run: run["seconds"])
        self.report.add(
            restore_peer=self.asked.keys / found["seconds"],
            restore_peer_cpu=found["cpu_seconds"] / self.asked.keys * 1e6,
            restore_peer_start=found["start_seconds"],
        )

    def _measure_sql(self, instance: Instance) -> None:
        sql = f"SELECT orders, amount FROM {STORE} WHERE key = ?"
        times = []
        cpu = own_cpu_seconds(instance.process.pid)
        for number in range(SQL_ASKED):
            key = location_key(number * 7919 % self.asked.keys).decode()
            times.append(self._asked(instance, {"sql": sql, "params": [key]}))
        cpu = own_cpu_seconds(instance.process.pid) - cpu
        sql = f"SELECT count(*), sum(orders), avg(amount) FROM {STORE}"
        every = [self._asked(instance, {"sql": sql}) for _ in range(SQL_AGGREGATES)]
        self.report.add(
            sql_by_key=statistics.median(times) * 1_000,
            sql_by_key_cpu=cpu / SQL_ASKED * 1_000,
            sql_aggregate=statistics.median(every),
        )

    def _asked(self, instance: Instance, statement: object) -> float:
        """Return how long an instance takes to answer a statement, in seconds."""
        began = time.perf_counter()
        if body_of(instance.server, "/v1/sql", statement) is None:
            msg = f"{instance.system.name} did not answer {statement}."
            raise RunError(msg)
        return time.perf_counter() - began

    def _measure_rival(self) -> None:
        topic = "rival-totals"
        show_progress(f"writing the input of {self.asked.keys:,} keys")
        self.topics.create(topic)
        writer = Writer(self.broker.address, topic)
        writer.load(self.asked.keys)
        instance = self._start(KAFKA_STREAMS, "rival", topic, self._server_core())
        try:
            instance.await_transaction(writer.transactions)
            self._measure_reads(instance, writer)
        finally:
            instance.close()
        self.topics.delete("rival")

    def _server_core(self) -> int | None:
        return self.cores[0] if can_pin() else None

    def _measure_reads(self, instance: Instance, writer: Writer) -> None:
        """Measure freshness, then point reads, then both, while updates arrive."""
        system = instance.system.name
        others = set(self.cores[1:]) if can_pin() else set(self.cores)
        pin(self.broker.pid, others)
        pin(os.getpid(), others)
        updates = Updates(writer, self.asked.keys, self.asked.updates, EVERY_SECONDS)
        updates.start()
        try:
            show_progress(f"{system}: committed to visible")
            self._ask(instance, WARM_UP_SECONDS, others)
            seen = self._seen(instance, updates, lambda: time.sleep(self.asked.seconds))
            self._add_waits(system, "freshness", seen)
            show_progress(f"{system}: point reads")
            cpu = own_cpu_seconds(instance.process.pid)
            load = self._ask(instance, self.asked.seconds, others)
            cpu = own_cpu_seconds(instance.process.pid) - cpu
            lag = writer.transactions - (instance.probe() or 0)
            memory = instance.memory_mb()
            self.report.add(
                system,
                point_reads=load.per_second,
                point_reads_p99=load.p99_ms,
                point_reads_cpu=load.answers / cpu,
                point_reads_lag=max(0, lag),
                memory=memory,
            )
            seen = self._seen(
                instance, updates, lambda: self._ask(instance, self.asked.seconds / 2, others)
            )
            self._add_waits(system, "freshness_loaded", seen)
        finally:
            updates.stop()
            pin(self.broker.pid, set(self.cores))
            pin(os.getpid(), set(self.cores))
        self.report.add(system, point_reads_updates=updates.per_second)

    def _ask(self, instance: Instance, seconds: float, cores: set[int]) -> Load:
        return ask_for_keys(instance.server, instance.system.keys, self.asked.keys, seconds, cores)

    def _seen(
        self, instance: Instance, updates: Updates, meanwhile: Callable[[], object]
    ) -> list[float]:
        """Return how long each transaction took to be visible, in milliseconds."""
        reader = Reader(instance.server, instance.system.keys + PROBE.decode())
        reader.start()
        # The first sighting is of a transaction from before.
        time.sleep(1.0)
        first = max(updates.commits)
        meanwhile()
        until = time.monotonic() + SEEN_SECONDS
        while max(updates.commits) < first + LEAST_WAITS and time.monotonic() < until:
            time.sleep(0.1)
        last = max(updates.commits)
        while reader.newest < last and time.monotonic() < until:
            time.sleep(0.1)
        reader.stop()
        counted = {n: at for n, at in updates.commits.items() if first < n <= last}
        return waits(counted, reader.sightings)

    def _add_waits(self, system: str, name: str, found: Sequence[float]) -> None:
        if not found:
            msg = f"{system}: a reader saw no new transaction in {SEEN_SECONDS:.0f} s."
            raise RunError(msg)
        values = {
            f"{name}_p50": percentile([*found], 0.5),
            f"{name}_p99": percentile([*found], 0.99),
        }
        self.report.add(system, **values)

    def _measure_kill(self, system: QueriedSystem) -> None:
        show_progress(f"{system.name}: kill -9 of one of {INSTANCES} instances")
        name = f"killed-{system.name}"
        source = f"{name}-input"
        writer: Writer
        if system is HEADRACE:
            writer = Leader(topology(source), self._config(name), source)
            writer.load(self.asked.kill_keys)
        else:
            self.topics.create(source)
            writer = Writer(self.broker.address, source)
        instances = [self._start(system, name, source) for _ in range(INSTANCES)]
        try:
            await_copies(instances, 2 * PARTITIONS)
            if system is not HEADRACE:
                # A rival that starts with nothing need not move what it has.
                writer.load(self.asked.kill_keys)
            for each in instances:
                each.await_transaction(writer.transactions)
            self.report.add(system.name, kill_gap=self._gap(instances, writer))
        finally:
            for each in instances:
                each.close()
        self.topics.delete(name)

    def _gap(self, instances: Sequence[Instance], writer: Writer) -> float:
        """Kill the instance with the most copies, and return the longest gap of the others."""
        system = instances[0].system
        copies = {each.server: system.copies(each.status() or {}) for each in instances}
        killed, *others = sorted(instances, key=lambda each: -copies[each.server])
        updates = Updates(writer, self.asked.kill_keys, KILL_UPDATES, EVERY_SECONDS)
        updates.start()
        probers = [Prober(each.server, self._paths(system)) for each in others]
        for prober in probers:
            prober.start()
        time.sleep(2.0)
        at = killed.kill()
        time.sleep(KILL_SECONDS)
        until = time.monotonic()
        for prober in probers:
            prober.stop()
        updates.stop()
        answers = [answer for prober in probers for answer in prober.answers]
        return longest_gap(answers, at, until)

    def _paths(self, system: QueriedSystem) -> list[str]:
        """Return the path of one key of each partition."""
        keys: dict[int, bytes] = {}
        for number in range(self.asked.kill_keys):
            key = location_key(number)
            keys.setdefault(partition_for_key(key, PARTITIONS), key)
            if len(keys) == PARTITIONS:
                break
        return [system.keys + key.decode() for key in keys.values()]

    def _measure_batches(self) -> None:
        show_progress(f"what each of {self.asked.batches} batches pays")
        found = batch_costs(self.broker.address, "paying", self.folder, self.asked.batches)
        self.report.add(
            batch_pays=percentile(found.with_changes, 0.5),
            batch_steps=percentile(found.steps, 0.5),
            batch_steps_p99=percentile(found.steps, 0.99),
        )
        self.topics.delete("paying")
        self.topics.delete("not-paying")


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        msg = f"{unknown[0]!r} is not one of {', '.join(PARTS)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def asked_for(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Measure queries, and compare each with its bar.")
    parser.add_argument("--parts", type=_parts, default=[*PARTS], metavar=",".join(PARTS))
    parser.add_argument("--alone", action="store_true", help="without Kafka Streams")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--kill-keys", type=int, default=100_000)
    parser.add_argument("--updates", type=int, default=20_000, help="in a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of restores, of which the best counts"
    )
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print the table, and write it as JSON; 1 if a measurement failed."""
    asked = asked_for()
    try:
        if not asked.alone:
            compile_rival()
        broker = start_broker(java_options=BROKER_JAVA)
    except MissingToolError as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="headrace-bench-queries-") as folder, broker:
        benchmark = Benchmark(asked, broker, Path(folder))
        benchmark.run()
    report = benchmark.report
    asked.results.mkdir(parents=True, exist_ok=True)
    name = f"queries-{report.began.replace(':', '').replace('+0000', 'Z')}.json"
    (asked.results / name).write_bytes(json_from_report(report))
    print(*query_table(report), sep="\n")
    note = busy_note(report)
    if note is not None:
        print(f"\n{note}")
    print(f"\nPoint reads by {report.client}. {asked.results / name}")
    return 1 if benchmark.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
