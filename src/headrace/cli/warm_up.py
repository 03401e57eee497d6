"""``headrace warm-up``: halves the start time of Spark."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from headrace import KafkaStreams, StreamsBuilder, TimeWindows
from headrace.brokers import open_log
from headrace.cli.session import Session, extra_needed, with_options
from headrace.config import StreamsConfig
from headrace.errors import StreamsError
from headrace.spark.processes.java import find_java
from headrace.topology.topology import Topology

_INPUT, _OUTPUT = "words", "counts"
_RECORDS = 100
_JAVA_SECONDS = 300.0


@with_options
def warm_up(
    *,
    again: Annotated[bool, typer.Option("--again", help="Replace an existing archive.")] = False,
    session: Session,
) -> None:
    """Halve the start time of applications: archive Spark's classes as Java has loaded them.

    Run it once for each environment that has Spark, or when you build an image. It runs a small
    application of its own, and takes about 30 s and 200 MB of disk.
    """
    with extra_needed("Warming up", "spark"):
        from headrace.spark.processes.cds_archive import cds_archive, remove_left_over
    archive = cds_archive(find_java().version)
    remove_left_over(archive)
    if archive.exists() and not again:
        session.did(f"Done before: {archive}.", archive=str(archive), made=False)
        return
    began = time.monotonic()
    try:
        _make(archive)
    except OSError as error:
        msg = (
            f"The archive {str(archive)!r} cannot be made: {error}. Applications run without it. "
            "Make room, or set `XDG_CACHE_HOME` to a folder that can be written."
        )
        raise StreamsError(msg) from error
    seconds, megabytes = time.monotonic() - began, archive.stat().st_size / 1e6
    session.did(
        f"Applications start faster from now on ({archive}, {megabytes:.0f} MB, {seconds:.0f} s).",
        archive=str(archive),
        made=True,
    )


def _make(archive: Path) -> None:
    with extra_needed("Warming up", "spark"):
        from headrace.spark.processes.cds_archive import keep_archive, recording_options
        from headrace.spark.session import JAVA_OPTIONS, end_java

    options = f"{JAVA_OPTIONS} {recording_options(archive)}"
    with TemporaryDirectory(prefix="headrace-warm-up-") as folder:
        config = StreamsConfig(
            application_id="warm-up",
            state_dir=Path(folder),
            trigger="available_now",
            spark={"spark.driver.extraJavaOptions": options},
        )
        for _ in range(2):  # the second run resumes from a checkpoint
            _count_words(config)
        has_ended = end_java(_JAVA_SECONDS)
    if not (has_ended and keep_archive(archive)):
        msg = "Java has made no archive of Spark's classes. Applications run without it."
        raise StreamsError(msg)


def _count_words(config: StreamsConfig) -> None:
    """Run an application that uses what most of them use."""
    log = open_log(config)
    try:
        if _INPUT not in log.list_topics():
            log.create_topic(_INPUT, partitions=2)
            log.create_topic(_OUTPUT, partitions=2)
        log.append(
            (_INPUT, n % 2, n, b"%d" % n, b"word %d" % (n % 7), None) for n in range(_RECORDS)
        )
    finally:
        log.close()
    streams = KafkaStreams(_topology(), config)
    streams.start()
    streams.await_termination()


def _topology() -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(_INPUT, key=str, value=str)
        .group_by(lambda _, text: text, key=str)
        .windowed_by(TimeWindows("1s"))
        .count(materialized=_OUTPUT)
        .to_stream()
        .to(_OUTPUT)
    )
    return builder.build()
