"""Headrace against Kafka Streams in Java and bare PySpark, on the same records in one run.

``make bench`` runs everything; ``python benchmarks/bench.py --help`` tells how to run less. What
the columns mean is in `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.dataset import Dataset
from benchmarks.latency import measure_latency
from benchmarks.plot import svg_from_report
from benchmarks.report import (
    Failure,
    Report,
    json_from_report,
    latency_table,
    this_machine,
    throughput_table,
    verdicts,
)
from benchmarks.systems import ROOT, SYSTEMS, USUAL, Job, System
from benchmarks.throughput import RunError, last_words, measure
from benchmarks.topics import Topics
from benchmarks.workloads import WORKLOADS, Expected, Workload
from tests.kafka_broker import MissingToolError, RunningBroker, start_broker

# As Kafka's own start script has them. Serial collection or one compiler alone would slow down
# whoever writes most.
BROKER_JAVA = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
LATENCY = "f"
BEFORE_NOW_MS = 900_000
EMPTY_QUERY_SECONDS = 20


class Benchmark:
    """One run of the harness: what was asked for, a broker with data, and what was found."""

    def __init__(self, asked: argparse.Namespace, broker: RunningBroker, folder: Path) -> None:
        self.asked, self.broker, self.folder = asked, broker, folder
        self.topics = Topics(broker.address)
        now = int(time.time() * 1000)
        self.start = now - now % 60_000 - BEFORE_NOW_MS
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
            _say(f"loading {dataset.records:,} orders of {dataset.keys:,} locations")
            self.topics.load(_source(dataset), dataset.raw_orders())
        if "e" in self.asked.workloads and datasets:
            largest = max(datasets, key=lambda dataset: dataset.records)
            self.topics.load("locations", largest.raw_locations())

    def _run_workload(self, workload: Workload) -> None:
        expected: dict[Dataset, Expected] = {}
        for system in self._systems(workload.letter):
            dataset = self._dataset(system)
            if dataset not in expected:
                expected[dataset] = workload.expected(dataset)
            _say(f"{workload.letter} {workload.title}: {system.name}")
            job = self._job(system, workload.letter, workload.name, _source(dataset))
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
            _say(f"f latency: {system.name}")
            job = self._job(system, LATENCY, WORKLOADS["a"].name, f"live-{system.name}")
            try:
                latency = measure_latency(system, job, self.topics, self.asked.latency_seconds)
            except RunError as error:
                self._fail(system, LATENCY, error)
            else:
                self.report.latencies.append(latency)
            self.topics.delete(job.application_id)
        if "headrace" in self.asked.systems:
            _say("f latency: the batch time of an empty Spark query")
            self.report.empty_query_ms = self._empty_query_ms()

    def _empty_query_ms(self) -> float | None:
        command = [sys.executable, "-m", "benchmarks.apps.empty_query", str(EMPTY_QUERY_SECONDS)]
        log = self.folder / "empty-query.log"
        with log.open("wb") as output:
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=output, check=False
            )
        if done.returncode:
            self._fail(SYSTEMS["headrace"], LATENCY, RunError(last_words(log)))
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
        return Job(program, address, name, self.folder / name, source, "locations", output)

    def _fail(self, system: System, letter: str, error: RunError) -> None:
        _say(f"{letter} {system.name} failed. {error}")
        self.report.failures.append(Failure(system.name, letter, str(error)))


def _source(dataset: Dataset) -> str:
    return f"orders-{dataset.records}"


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def _names(known: Sequence[str], text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        msg = f"{unknown[0]!r} is not one of {', '.join(known)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def asked_for(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Compare Headrace with Kafka Streams and PySpark.")
    letters = [*WORKLOADS, LATENCY]
    parser.add_argument(
        "--workloads",
        type=lambda text: _names(letters, text),
        default=letters,
        metavar="a,b,…",
        help=", ".join(f"{letter}: {WORKLOADS[letter].title}" for letter in WORKLOADS)
        + f", {LATENCY}: latency",
    )
    parser.add_argument(
        "--systems",
        type=lambda text: _names([*SYSTEMS], text),
        default=[*USUAL],
        metavar="NAME,…",
        help=f"of {', '.join(SYSTEMS)}",
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--latency-seconds", type=float, default=60.0)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, and write JSON and a plot; 1 if a run failed or an output was wrong."""
    asked = asked_for()
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
