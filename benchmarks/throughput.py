"""One system runs one workload: how fast, at what cost, and whether its outputs are right."""

from __future__ import annotations

import subprocess
import time
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from benchmarks.process_tree import ProcessTree, own_cpu_seconds
from benchmarks.systems import Job, System, start
from benchmarks.topics import Topics
from benchmarks.workloads import Checker, Expected, Workload

POLL_SECONDS = 0.05
MEMORY_SECONDS = 1.0
QUIET_SECONDS = 2.0
"""After the last input is committed, outputs that come from a repartition topic may follow."""
STALLED_SECONDS = 120.0
END_SECONDS = 60.0
LAST_WORDS = 3000


class RunError(Exception):
    """A program ended early, or made no progress."""


class Sample(Struct):
    """The progress of a program at one moment."""

    seconds: float
    """Since the program was started."""
    committed: int
    outputs: int
    """Where the output topic ends; transactions add markers of their own."""
    cpu_seconds: float
    broker_cpu_seconds: float


class Measurement(Struct):
    """The cost of one run. Every system is measured from outside, in the same way."""

    system: str
    workload: str
    records: int
    records_per_second: float
    """From the first to the last commit, without the records of the first."""
    records_per_second_with_start: float
    """From the start of the program to the last commit."""
    cpu_us_per_record: float
    """CPU time of all its processes from the first to the last commit."""
    cpu_us_per_record_with_start: float
    broker_cpu_us_per_record: float
    peak_memory_mb: float
    memory_by_process_mb: dict[str, float]
    first_output_seconds: float
    """From the start of the program until a `read_committed` consumer can see an output."""
    seconds: float
    outputs: int
    """Records that were read from the output topic."""
    commits: int
    """How often more was found committed; at most one each `POLL_SECONDS`."""
    problems: list[str]


def measurement_from_samples(
    names: tuple[str, str], records: int, samples: list[Sample], memory: dict[str, int]
) -> Measurement:
    """Return the measurement that the samples of a finished run give."""
    first_output = next(sample for sample in samples if sample.outputs)
    first = next(sample for sample in samples if sample.committed)
    outputs = samples[-1].outputs
    last = next(
        sample for sample in samples if sample.committed >= records and sample.outputs >= outputs
    )
    if last is first or first.committed >= records:
        first = Sample(0.0, 0, 0, 0.0, samples[0].broker_cpu_seconds)
    counted = records - first.committed
    commits = sum(after.committed > before.committed for before, after in pairwise(samples))
    system, workload = names
    return Measurement(
        system=system,
        workload=workload,
        records=records,
        records_per_second=counted / (last.seconds - first.seconds),
        records_per_second_with_start=records / last.seconds,
        cpu_us_per_record=(last.cpu_seconds - first.cpu_seconds) / counted * 1e6,
        cpu_us_per_record_with_start=last.cpu_seconds / records * 1e6,
        broker_cpu_us_per_record=(last.broker_cpu_seconds - first.broker_cpu_seconds)
        / counted
        * 1e6,
        peak_memory_mb=sum(memory.values()) / 1e6,
        memory_by_process_mb={name: size / 1e6 for name, size in memory.items()},
        first_output_seconds=first_output.seconds,
        seconds=last.seconds,
        outputs=0,
        commits=commits,
        problems=[],
    )


class Watch:
    """Follows a running program by what it commits and writes.

    Args:
        process: The program, the first of its session.
        topics: Where it reads and writes.
        job: The workload it runs.
        broker: The process of the broker.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], topics: Topics, job: Job, broker: int
    ) -> None:
        self._process, self._topics, self._job, self._broker = process, topics, job, broker
        self._tree = ProcessTree(process.pid)
        self._started = time.monotonic()
        self._weighed = 0.0
        self.samples: list[Sample] = []
        self.memory: dict[str, int] = {}
        """At the moment when it was most."""

    def follow(self, records: int) -> None:
        """Take samples until all records are committed and outputs have ceased to come.

        Raises:
            RunError: The program ended, or nothing moved for `STALLED_SECONDS`.
        """
        moved = self._started
        while True:
            sample = self._sample()
            before = self.samples[-1] if self.samples else None
            self.samples.append(sample)
            now = time.monotonic()
            if before is None or (before.committed, before.outputs) != (
                sample.committed,
                sample.outputs,
            ):
                moved = now
            if sample.committed >= records and sample.outputs and now - moved > QUIET_SECONDS:
                return
            if self._process.poll() is not None:
                msg = f"The program ended with exit code {self._process.returncode}."
                raise RunError(msg)
            if now - moved > STALLED_SECONDS:
                msg = (
                    f"Nothing moved for {STALLED_SECONDS:.0f} s, at {sample.committed} of "
                    f"{records} records."
                )
                raise RunError(msg)
            self._weigh(now)
            time.sleep(POLL_SECONDS)

    def _sample(self) -> Sample:
        committed = self._topics.committed(self._job.application_id, self._job.source)
        outputs = sum(self._topics.end_offsets(self._job.output))
        return Sample(
            time.monotonic() - self._started,
            committed,
            outputs,
            self._tree.cpu_seconds(),
            own_cpu_seconds(self._broker),
        )

    def _weigh(self, now: float) -> None:
        if now - self._weighed > MEMORY_SECONDS:
            self._weighed = now
            memory = self._tree.memory()
            if sum(memory.values()) > sum(self.memory.values()):
                self.memory = memory


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program in order, then whatever is left of its session."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        ProcessTree(process.pid).kill()
        process.wait()


def measure(
    system: System,
    workload: Workload,
    job: Job,
    topics: Topics,
    *,
    broker: int,
    records: int,
    expected: Expected,
) -> Measurement:
    """Run a workload to its end and return what it cost, and what is wrong with its outputs.

    Raises:
        RunError: The program failed; the error ends with its last words.
    """
    topics.create(job.output)
    job.state.mkdir(parents=True)
    log = job.state.with_suffix(".log")
    process = start(system.command(job), log, system.home)
    watch = Watch(process, topics, job, broker)
    try:
        watch.follow(records)
    except RunError as error:
        msg = f"{error}\n{jvm_exit_reason(log)}"
        raise RunError(msg) from None
    finally:
        end(process)
    names = system.name, workload.letter
    measured = measurement_from_samples(names, records, watch.samples, watch.memory)
    checker = Checker(expected)
    for message in topics.read(job.output):
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert value is not None
        checker.add(key, workload.answer_from(value))
    measured.outputs, measured.problems = checker.count, checker.problems()
    return measured


def jvm_exit_reason(log: Path) -> str:
    """Return the end of a program's output."""
    return log.read_text(errors="replace")[-LAST_WORDS:]
