"""Headrace against Kafka Streams in Java and bare PySpark, on the same records in one run.

``make bench`` runs everything; ``python benchmarks/bench.py --help`` lists the options. With
``--against REVISION`` it measures this work tree and a git revision instead. `docs/benchmarks.md`
explains the columns.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.against import USUAL_ROUNDS, USUAL_WORKLOADS, compare
from benchmarks.dataset import Dataset, recent_start
from benchmarks.latency import measure_latency
from benchmarks.plot import svg_from_report
from benchmarks.report import (
    Failure,
    Report,
    json_from_report,
    latency_table,
    show_progress,
    this_machine,
    throughput_table,
    verdicts,
)
from benchmarks.systems import BROKER_JAVA, LOCATIONS, ROOT, SYSTEMS, USUAL, Job, System
from benchmarks.throughput import RunError, jvm_exit_reason, measure
from benchmarks.topics import Topics
from benchmarks.workloads import WORKLOADS, Expected, Workload
from tests.kafka_broker import MissingToolError, RunningBroker, start_broker

LATENCY = "f"
EMPTY_QUERY_SECONDS = 20


class Benchmark:
    """One run of the harness: its options, a broker with data, and the report."""

    def __init__(self, asked: argparse.Namespace, broker: RunningBroker, folder: Path) -> None:
        self.asked, self.broker, self.folder = asked, broker, folder
        self.topics = Topics(broker.address)
        self.start = recent_start()
        self.report = Report(
            began=datetime.now(UTC).isoformat(timespec="seconds"),
            records=asked.records,
            keys=asked.keys,
            machine=this_machine(),
        )

    def run(self) -> None:
        """Run every workload on every system that has it."""
        self._load()
        for letter in self.asked.workloads:
            if letter in WORKLOADS:
                self._run_workload(WORKLOADS[letter])
        if LATENCY in self.asked.workloads:
            self._run_latencies()

    def _load(self) -> None:
        datasets = {self._dataset(system) for system in self._systems("abcde")}
        for dataset in datasets:
            show_progress(f"loading {dataset.records:,} orders of {dataset.keys:,} locations")
            self.topics.load(dataset.topic, dataset.raw_orders())
        if "e" in self.asked.workloads and datasets:
            largest = max(datasets, key=lambda dataset: dataset.records)
            self.topics.load(LOCATIONS, largest.raw_locations())

    def _run_workload(self, workload: Workload) -> None:
        expected: dict[Dataset, Expected] = {}
        for system in self._systems(workload.letter):
            dataset = self._dataset(system)
            if dataset not in expected:
                expected[dataset] = workload.expected(dataset)
            show_progress(f"{workload.letter} {workload.title}: {system.name}")
            job = self._job(system, workload.letter, workload.name, dataset.topic)
            try:
                measured = measure(
                    system,
                    workload,
                    job,
                    self.topics,
                    broker=self.broker.pid,
                    records=dataset.records,
                    expected=expected[dataset],
                )
            except RunError as error:
                self._fail(system, workload.letter, error)
            else:
                self.report.measurements.append(measured)
            self.topics.delete(job.application_id)

    def _run_latencies(self) -> None:
        for system in self._systems(LATENCY):
            show_progress(f"f latency: {system.name}")
            job = self._job(system, LATENCY, WORKLOADS["a"].name, f"live-{system.name}")
            try:
                latency = measure_latency(system, job, self.topics, self.asked.latency_seconds)
            except RunError as error:
                self._fail(system, LATENCY, error)
            else:
                self.report.latencies.append(latency)
            self.topics.delete(job.application_id)
        if "headrace" in self.asked.systems:
            show_progress("f latency: the batch time of an empty Spark query")
            self.report.empty_query_ms = self._empty_query_ms()

    def _empty_query_ms(self) -> float | None:
        command = [sys.executable, "-m", "benchmarks.apps.empty_query", str(EMPTY_QUERY_SECONDS)]
        log = self.folder / "empty-query.log"
        with log.open("wb") as output:
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=output, check=False
            )
        if done.returncode:
            self._fail(SYSTEMS["headrace"], LATENCY, RunError(jvm_exit_reason(log)))
            return None
        return float(json.loads(done.stdout.splitlines()[-1])["batch_ms"])

    def _systems(self, letters: str) -> list[System]:
        chosen = [SYSTEMS[name] for name in self.asked.systems]
        wanted = set(letters) & set(self.asked.workloads)
        return [system for system in chosen if wanted & set(system.workloads)]

    def _dataset(self, system: System) -> Dataset:
        records = min(self.asked.records, system.most_records or self.asked.records)
        return Dataset(records, self.asked.keys, self.start)

    def _job(self, system: System, letter: str, program: str, source: str) -> Job:
        name = f"bench-{letter}-{system.name}"
        address = self.broker.address
        output = f"{name}-output"
        return Job(program, address, name, self.folder / name, source, LOCATIONS, output)

    def _fail(self, system: System, letter: str, error: RunError) -> None:
        show_progress(f"{letter} {system.name} failed. {error}")
        self.report.failures.append(Failure(system.name, letter, str(error)))


def _names(known: Sequence[str], text: str) -> list[str]:
    names = [*dict.fromkeys(text.split(","))]
    unknown = [name for name in names if name not in known]
    if unknown:
        msg = f"{unknown[0]!r} is not one of {', '.join(known)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a whole number of at least 1"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def asked_for(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description="Compare Headrace with Kafka Streams and PySpark, or with an earlier Headrace."
    )
    letters = [*WORKLOADS, LATENCY]
    parser.add_argument(
        "--against",
        metavar="REVISION",
        help="measure this work tree and a git revision in turn, Headrace only, and print the "
        f"ratio for each workload of {', '.join(WORKLOADS)}; --workloads is "
        f"{','.join(USUAL_WORKLOADS)} if left out",
    )
    parser.add_argument(
        "--rounds",
        type=_at_least_one,
        metavar="N",
        help="with --against: how often to measure each side; an even number lets each be first "
        f"as often as the other ({USUAL_ROUNDS} if left out)",
    )
    parser.add_argument(
        "--workloads",
        type=lambda text: _names(letters, text),
        metavar="a,b,…",
        help=", ".join(f"{letter}: {WORKLOADS[letter].title}" for letter in WORKLOADS)
        + f", {LATENCY}: latency",
    )
    parser.add_argument(
        "--systems",
        type=lambda text: _names([*SYSTEMS], text),
        metavar="NAME,…",
        help=f"of {', '.join(SYSTEMS)}",
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--latency-seconds", type=float, default=60.0)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    asked = parser.parse_args(arguments)
    if asked.against is None:
        if asked.rounds is not None:
            parser.error("--rounds needs --against")
        asked.workloads = asked.workloads or letters
        asked.systems = asked.systems or [*USUAL]
        return asked
    if asked.systems is not None:
        parser.error("--against measures Headrace only: leave out --systems")
    if LATENCY in (asked.workloads or ()):
        parser.error(f"--against measures no latency: leave out workload {LATENCY}")
    asked.workloads = asked.workloads or [*USUAL_WORKLOADS]
    asked.rounds = asked.rounds or USUAL_ROUNDS
    return asked


def main() -> int:
    """Measure, print, and write JSON and a plot; 1 if a run failed or an output was wrong."""
    asked = asked_for()
    if asked.against is not None:
        # A terminated comparison ends its programs and deletes its folders, as after Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return compare(asked)
    try:
        for name in asked.systems:
            SYSTEMS[name].prepare()
        broker = start_broker(java_options=BROKER_JAVA)
    except MissingToolError as error:
        print(error, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, broker:
        benchmark = Benchmark(asked, broker, Path(folder))
        benchmark.run()
    report = benchmark.report
    asked.results.mkdir(parents=True, exist_ok=True)
    written = asked.results / report.began.replace(":", "").replace("+0000", "Z")
    written.with_suffix(".json").write_bytes(json_from_report(report))
    written.with_suffix(".svg").write_text(svg_from_report(report))
    print(*throughput_table(report), sep="\n")
    if report.latencies:
        print("", *latency_table(report), sep="\n")
    print("", *verdicts(report), sep="\n")
    for failure in report.failures:
        print(f"FAILED  {failure.workload} {failure.system}: {failure.message.splitlines()[0]}")
    print(f"\n{written}.json, {written.name}.svg")
    return 0 if report.is_right() else 1


if __name__ == "__main__":
    raise SystemExit(main())
