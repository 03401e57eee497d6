"""The systems that are compared: how each one's program for a workload is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.kafka_broker import MissingToolError

ROOT = Path(__file__).parents[1]
JAVA = ROOT / "benchmarks" / "java"
LOCATIONS = "locations"
"""The topic of the table that orders are joined with."""
# The options of Kafka's own start script. Serial collection or a single compiler would slow down
# the system that writes most.
BROKER_JAVA = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class Job(NamedTuple):
    """One run of one system."""

    workload: str
    address: str
    application_id: str
    state: Path
    source: str
    table: str
    output: str


@dataclass(frozen=True)
class System:
    """Something that can run workloads."""

    name: str
    command: Callable[[Job], list[str]]
    prepare: Callable[[], None]
    workloads: str = "abcdef"
    """The letters of those that it has a program for."""
    most_records: int | None = None
    """Where all records would take too long."""
    home: Path = ROOT
    """The tree whose Python modules its program imports."""


def compile_rival() -> None:
    """Compile the Java programs if that was not done since they changed.

    Raises:
        MissingToolError: Maven is not installed.
    """
    sources = [JAVA / "pom.xml", *JAVA.glob("src/**/*.java")]
    built = JAVA / "target" / "benchmark-rival-1.jar"
    if built.exists() and all(source.stat().st_mtime < built.stat().st_mtime for source in sources):
        return
    if shutil.which("mvn") is None:
        msg = "Maven is missing. Install it, for example `apt install maven`."
        raise MissingToolError(msg)
    command = ["mvn", "--quiet", "--batch-mode", "--file", str(JAVA / "pom.xml"), "package"]
    subprocess.run(command, check=True)


def warm_up(home: Path = ROOT) -> None:
    """Run `headrace warm-up`, as a user does once after installing."""
    command = [sys.executable, "-m", "headrace.cli.main", "warm-up", "--quiet"]
    subprocess.run(command, cwd=home, env=environment_of(home), check=True)


def kafka_streams(guarantee: str) -> Callable[[Job], list[str]]:
    """Return the command of Kafka Streams in Java: 2 threads, RocksDB, default cache."""

    def command(job: Job) -> list[str]:
        return [
            "java",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            f"{JAVA / 'target' / 'benchmark-rival-1.jar'}:{JAVA / 'target' / 'lib'}/*",
            "io.headrace.benchmarks.Main",
            job.workload,
            job.address,
            job.application_id,
            str(job.state),
            guarantee,
            job.source,
            job.table,
            job.output,
        ]

    return command


def python(module: str) -> Callable[[Job], list[str]]:
    """Return the command of a Python program that takes the job as its arguments."""
    return lambda job: [sys.executable, "-m", module, *map(str, job)]


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of a Python program that imports the modules of a tree first."""
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{home / 'src'}"}


def start(command: list[str], log: Path, home: Path = ROOT) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, that ends when its standard input does."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=home,
            env=environment_of(home),
            start_new_session=True,
        )


SYSTEMS = {
    system.name: system
    for system in (
        System("kafka-streams", kafka_streams("exactly_once_v2"), compile_rival),
        System("kafka-streams-at-least-once", kafka_streams("at_least_once"), compile_rival),
        System("headrace", python("benchmarks.apps.run"), warm_up),
        System(
            "pyspark",
            python("benchmarks.apps.pyspark_totals"),
            lambda: None,
            workloads="a",
            most_records=50_000,
        ),
    )
}
BASELINE = "kafka-streams"
USUAL = ("kafka-streams", "headrace", "pyspark")
