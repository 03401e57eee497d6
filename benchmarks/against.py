"""This work tree against a git revision: Headrace only, side by side on the same records.

Each round measures both sides once. The order alternates from round to round (A B, B A, …), so
that a machine that becomes slower or faster during the comparison favours neither side.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from msgspec import Struct, field

from benchmarks.dataset import Dataset, recent_start
from benchmarks.report import Failure, Machine, json_from_report, show_progress, this_machine
from benchmarks.revisions import (
    Revision,
    RevisionError,
    check_imports,
    copy_work_tree,
    export_revision,
)
from benchmarks.systems import BROKER_JAVA, LOCATIONS, SYSTEMS, Job, System, warm_up
from benchmarks.throughput import Measurement, RunError, measure
from benchmarks.topics import Topics
from benchmarks.workloads import WORKLOADS, Expected, Workload
from tests.kafka_broker import MissingToolError, RunningBroker, jars, start_broker

THIS, BASE = "this", "base"
JOINED = "e"
USUAL_WORKLOADS = ("a", "b", "d")
USUAL_ROUNDS = 4
"""An even number, so that each side is first as often as the other."""
INTERRUPTED = 130
QUIET_LOAD = 0.5
FEWEST_COMMITS = 2


class Side(Struct):
    """One of the two trees."""

    label: str
    """How tables name it: `this`, or the revision as it was given."""
    revision: Revision
    headrace: str
    """The file of the package that its programs import."""


class Run(Struct):
    """One run of one side. `measured.system` is `THIS` or `BASE`."""

    round: int
    measured: Measurement


class Summary(Struct):
    """A workload over all rounds. Runs with wrong outputs do not count."""

    workload: str
    this: float | None
    """Records/s, the median; None without a run that counts."""
    base: float | None
    ratio: float | None
    """`this` over `base`."""
    round_ratios: list[float]
    """The same of each round in which both runs count."""


class Comparison(Struct):
    """Everything that one comparison found."""

    began: str
    records: int
    keys: int
    rounds: int
    machine: Machine
    sides: dict[str, Side]
    summaries: list[Summary] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def is_right(self) -> bool:
        """Return whether every run ended and every output was right."""
        return not self.failures and not any(run.measured.problems for run in self.runs)


def order_of(round_number: int) -> tuple[str, str]:
    """Return the sides in the order in which a round measures them; rounds count from 1."""
    return (THIS, BASE) if round_number % 2 else (BASE, THIS)


def summarise(workload: str, runs: Sequence[Run]) -> Summary:
    """Return the medians of a workload, and this side over the other."""
    rates: dict[str, dict[int, float]] = {THIS: {}, BASE: {}}
    for run in runs:
        if run.measured.workload == workload and not run.measured.problems:
            rates[run.measured.system][run.round] = run.measured.records_per_second
    this, base = (median(rates[side].values()) if rates[side] else None for side in (THIS, BASE))
    return Summary(
        workload,
        this,
        base,
        this / base if this is not None and base is not None else None,
        [
            rate / rates[BASE][number]
            for number, rate in sorted(rates[THIS].items())
            if number in rates[BASE]
        ],
    )


class Rounds:
    """Measures both sides.

    Args:
        report: Takes the results.
        systems: Headrace from the tree of each side.
        broker: Has the orders.
        folder: For the state of the programs.
    """

    def __init__(
        self,
        report: Comparison,
        systems: dict[str, System],
        broker: RunningBroker,
        folder: Path,
    ) -> None:
        self._report, self._systems, self._broker = report, systems, broker
        self._folder = folder
        self._topics = Topics(broker.address)
        self._dataset = Dataset(report.records, report.keys, recent_start())

    def run(self, letters: Sequence[str]) -> None:
        """Load the orders, and measure each workload for all rounds."""
        records, keys = self._report.records, self._report.keys
        show_progress(f"loading {records:,} orders of {keys:,} locations")
        self._topics.load(self._dataset.topic, self._dataset.raw_orders())
        if JOINED in letters:
            self._topics.load(LOCATIONS, self._dataset.raw_locations())
        is_cold = True
        for letter in letters:
            workload = WORKLOADS[letter]
            expected = workload.expected(self._dataset)
            if is_cold:
                # A new broker runs uncompiled code, which would slow down the first side.
                show_progress(f"{letter} {workload.title}, not counted: warms the broker up")
                self._try(0, THIS, workload, expected)
                is_cold = False
            for number in range(1, self._report.rounds + 1):
                for side in order_of(number):
                    self._count(number, side, workload, expected)
            self._report.summaries.append(summarise(letter, self._report.runs))

    def _count(self, number: int, side: str, workload: Workload, expected: Expected) -> None:
        measured = self._try(number, side, workload, expected)
        label = self._report.sides[side].label
        what = f"{workload.letter} {workload.title}, round {number}, {label}"
        if isinstance(measured, RunError):
            show_progress(f"{what} failed. {measured}")
            failed = f"{label}, round {number}"
            self._report.failures.append(Failure(failed, workload.letter, str(measured)))
        else:
            outputs = "; ".join(measured.problems) or "outputs right"
            show_progress(f"{what}: {measured.records_per_second:,.0f} records/s, {outputs}")
            self._report.runs.append(Run(number, measured))

    def _try(
        self, number: int, side: str, workload: Workload, expected: Expected
    ) -> Measurement | RunError:
        name = f"bench-{workload.letter}-{number}-{side}"
        state, output = self._folder / name, f"{name}-output"
        source, address = self._dataset.topic, self._broker.address
        job = Job(workload.name, address, name, state, source, LOCATIONS, output)
        measured: Measurement | RunError
        try:
            measured = measure(
                self._systems[side],
                workload,
                job,
                self._topics,
                broker=self._broker.pid,
                records=self._dataset.records,
                expected=expected,
            )
        except RunError as error:
            measured = error
        self._topics.delete(name)
        shutil.rmtree(state, ignore_errors=True)
        return measured


def lines_of(report: Comparison) -> Iterator[str]:
    """Yield the sides, the table of medians, and the table of all runs."""
    labels = {name: side.label for name, side in report.sides.items()}
    width = max(9, *map(len, labels.values()))
    for side in report.sides.values():
        yield f"{side.label:{width}}  {side.revision}"
    machine = report.machine
    yield (
        f"{report.records:,} records, {report.keys:,} keys, {machine.cores} cores, rounds: "
        f"{report.rounds}. Median records/s:"
    )
    yield ""
    yield f"{'workload':20} {labels[THIS]:>{width}} {labels[BASE]:>{width}}  ratio  by round"
    for each in report.summaries:
        yield (
            f"{_titled(each.workload):20} {_rate(each.this):>{width}} {_rate(each.base):>{width}} "
            f"{_ratio(each.ratio):>6}  {' '.join(map(_ratio, each.round_ratios))}"
        )
    yield ""
    yield (
        f"{'workload':20} round {'side':{width}} {'records/s':>10} {'with start':>10} "
        f"{'µs CPU':>7} {'broker':>7} {'first out':>9} {'memory':>8} commits  outputs"
    )
    for run in report.runs:
        measured = run.measured
        yield (
            f"{_titled(measured.workload):20} {run.round:>5} {labels[measured.system]:{width}} "
            f"{measured.records_per_second:>10,.0f} "
            f"{measured.records_per_second_with_start:>10,.0f} "
            f"{measured.cpu_us_per_record:>7.1f} {measured.broker_cpu_us_per_record:>7.1f} "
            f"{measured.first_output_seconds:>7.1f} s {measured.peak_memory_mb:>5,.0f} MB "
            f"{measured.commits:>7.0f}  {'; '.join(measured.problems) or 'right'}"
        )
    for failure in report.failures:
        words = failure.message.splitlines()[0]
        yield f"FAILED  {_titled(failure.workload)}, {failure.system}: {words}"
    if machine.load_average > QUIET_LOAD:
        yield (
            f"NOTE  Other programs ran before the comparison (load {machine.load_average}). "
            "Repeat it on a quiet machine."
        )
    if any(run.measured.commits < FEWEST_COMMITS for run in report.runs):
        yield (
            "NOTE  A run with one commit counts from the start of its program, which is mostly "
            "the start of Spark. Raise --records."
        )


def _titled(letter: str) -> str:
    return f"{letter} {WORKLOADS[letter].title}"


def _rate(rate: float | None) -> str:
    return "none" if rate is None else f"{rate:,.0f}"


def _ratio(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.2f}x"


def compare(asked: argparse.Namespace) -> int:
    """Measure both sides, print and write the tables; 1 if a run failed or an output was wrong."""
    try:
        # The trees have a folder of their own: no program writes there while it is deleted.
        with TemporaryDirectory(prefix="headrace-against-") as trees:
            report = _measure(asked, Path(trees).resolve())
    except (RevisionError, MissingToolError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: no tables, temporary folders deleted.", file=sys.stderr)
        return INTERRUPTED
    asked.results.mkdir(parents=True, exist_ok=True)
    stamp = report.began.replace(":", "").replace("+0000", "Z")
    written = asked.results / f"{stamp}-against"
    text = "\n".join(lines_of(report))
    written.with_suffix(".txt").write_text(f"{text}\n")
    written.with_suffix(".json").write_bytes(json_from_report(report))
    print(text)
    print(f"\n{written}.txt, {written.name}.json")
    return 0 if report.is_right() else 1


def _measure(asked: argparse.Namespace, trees: Path) -> Comparison:
    programs = [WORKLOADS[letter].name for letter in asked.workloads]
    homes = {THIS: trees / THIS, BASE: trees / BASE}
    revisions = {
        BASE: export_revision(asked.against, homes[BASE], programs),
        THIS: copy_work_tree(homes[THIS]),
    }
    labels = {THIS: THIS, BASE: asked.against}
    sides = {
        side: Side(labels[side], revisions[side], str(check_imports(homes[side], programs)))
        for side in (THIS, BASE)
    }
    for side in sides.values():
        show_progress(f"{side.label} is {side.revision}, imported from {side.headrace}")
    report = Comparison(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        records=asked.records,
        keys=asked.keys,
        rounds=asked.rounds,
        machine=this_machine(),
        sides=sides,
    )
    headrace = SYSTEMS["headrace"]
    systems = {
        side: replace(headrace, name=side, prepare=partial(warm_up, home), home=home)
        for side, home in homes.items()
    }
    for system in systems.values():
        system.prepare()
    with TemporaryDirectory(prefix="headrace-bench-") as folder, _start_broker() as broker:
        Rounds(report, systems, broker, Path(folder)).run(asked.workloads)
    return report


def _start_broker() -> RunningBroker:
    """Start a broker that ignores Ctrl-C, since a program without one closes only after a minute.

    Raises:
        MissingToolError: Java or Maven is not installed.
    """
    jars()  # Maven may take minutes, during which Ctrl-C works
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # children inherit it
    try:
        return start_broker(java_options=BROKER_JAVA)
    finally:
        signal.signal(signal.SIGINT, handler)
