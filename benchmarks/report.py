"""The results of a benchmark: as a table, as verdicts on the bars, as JSON."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

from benchmarks.latency import Latency
from benchmarks.systems import BASELINE
from benchmarks.throughput import Measurement
from benchmarks.workloads import WORKLOADS

OURS = "headrace"
FIRST_OUTPUT_BAR_SECONDS = 12.0
MEMORY_BAR_MB = 2500.0
LATENCY_BAR = 2.5


class Failure(Struct):
    """A run that failed."""

    system: str
    workload: str
    message: str


class Machine(Struct):
    """The machine on which it was measured."""

    cores: int
    memory_gb: float
    kernel: str
    load_average: float
    """Of the minute before the benchmark began: much above 0 means that others were at work."""


class Report(Struct):
    """Everything that one benchmark found."""

    began: str
    records: int
    keys: int
    machine: Machine
    measurements: list[Measurement] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    empty_query_ms: float | None = None
    """Batch time of a `transformWithState` query without data."""
    failures: list[Failure] = field(default_factory=list)

    def ratio(self, measurement: Measurement) -> float | None:
        """Return how many times as fast as the baseline a system was on the same workload."""
        for other in self.measurements:
            if (other.system, other.workload) == (BASELINE, measurement.workload):
                return measurement.records_per_second / other.records_per_second
        return None

    def is_right(self) -> bool:
        """Return whether every run ended and every output was right."""
        return not self.failures and not any(each.problems for each in self.measurements)


def this_machine() -> Machine:
    """Return the description of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    cores = len(os.sched_getaffinity(0))
    return Machine(cores, round(memory, 1), platform.release(), round(os.getloadavg()[0], 2))


def show_progress(text: str) -> None:
    """Print a line with the time, apart from the results."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def json_from_report(report: Struct) -> bytes:
    """Return a report as JSON for people and programs."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def throughput_table(report: Report) -> Iterator[str]:
    """Yield the lines of the table of throughputs."""
    yield (
        f"{'workload':20} {'system':28} {'records/s':>10} {'ratio':>6} {'with start':>10} "
        f"{'µs CPU':>8} {'broker':>7} {'first out':>9} {'memory':>8}  outputs"
    )
    for each in report.measurements:
        workload = WORKLOADS[each.workload]
        ratio = report.ratio(each)
        yield (
            f"{workload.letter + ' ' + workload.title:20} {each.system:28} "
            f"{each.records_per_second:>10,.0f} "
            f"{'' if ratio is None else f'{ratio:.2f}x':>6} "
            f"{each.records_per_second_with_start:>10,.0f} "
            f"{each.cpu_us_per_record:>8.1f} {each.broker_cpu_us_per_record:>7.1f} "
            f"{each.first_output_seconds:>7.1f} s {each.peak_memory_mb:>5,.0f} MB  "
            f"{'; '.join(each.problems) or 'right'}"
        )


def latency_table(report: Report) -> Iterator[str]:
    """Yield the lines of the table of latencies."""
    yield f"{'f latency, 200 records/s':49} {'p50':>9} {'p99':>9} {'max':>9} {'cores':>6}"
    for each in report.latencies:
        missing = f"  {each.missing} totals missing" if each.missing else ""
        yield (
            f"{'':20} {each.system:28} {each.p50_ms:>6,.0f} ms {each.p99_ms:>6,.0f} ms "
            f"{each.max_ms:>6,.0f} ms {each.cpu_cores:>6.2f}{missing}"
        )
    if report.empty_query_ms is not None:
        yield f"{'':20} {'an empty Spark batch':28} {report.empty_query_ms:>6,.0f} ms"


def verdicts(report: Report) -> Iterator[str]:
    """Yield for each bar the result, the target, and whether the result meets it."""
    ours = [each for each in report.measurements if each.system == OURS]
    for each in ours:
        workload, ratio = WORKLOADS[each.workload], report.ratio(each)
        if ratio is not None:
            what = f"{workload.letter} {workload.title}: {ratio:.2f}x {BASELINE}"
            yield _verdict(what, f"at least {workload.bar}x", met=ratio >= workload.bar)
    if ours:
        slowest = max(each.first_output_seconds for each in ours)
        bar = FIRST_OUTPUT_BAR_SECONDS
        yield _verdict(
            f"start to first output: {slowest:.1f} s", f"at most {bar:.0f} s", met=slowest <= bar
        )
        most = max(each.peak_memory_mb for each in ours)
        yield _verdict(
            f"memory: {most:,.0f} MB", f"at most {MEMORY_BAR_MB:,.0f} MB", met=most <= MEMORY_BAR_MB
        )
    for latency in report.latencies:
        if latency.system == OURS and report.empty_query_ms:
            ratio = latency.p50_ms / report.empty_query_ms
            what = f"f latency p50: {latency.p50_ms:.0f} ms, {ratio:.2f}x an empty batch"
            yield _verdict(what, f"at most {LATENCY_BAR}x", met=ratio <= LATENCY_BAR)


def _verdict(what: str, bar: str, *, met: bool) -> str:
    return f"{'met   ' if met else 'MISSED'}  {what} (bar: {bar})"
