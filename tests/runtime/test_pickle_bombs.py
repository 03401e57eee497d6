"""A pickle is planted wherever something is read, and never unpickled."""

from __future__ import annotations

import logging
import pickle
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from headrace import CheckpointError, ConfigError, StreamsBuilder, StreamsConfig, StreamsError
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.runtime.checkpoint.files import FIRST_FILE
from headrace.runtime.checkpoint.layout import LAYOUT_FILE
from headrace.runtime.run_files import BatchResult, Control, PlannerStatus, RunFiles
from headrace.serdes import StringSerde
from headrace.spark.processes.cds_archive import archive_options
from headrace.topology.naming import markers_name, snapshots_name
from headrace.topology.topology import Topology
from tests.application_home import embedded_home
from tests.hostile import SERDES, Bomb, bombs
from tests.runtime.in_process import InProcessQuery

IN = TopicPartition("in", 0)


@pytest.fixture
def bomb(tmp_path: Path) -> Iterator[Bomb]:
    """A pickle that makes a file; the test fails if there is one."""
    bomb = Bomb(tmp_path / "exploded")
    yield bomb
    assert not bomb.mark.exists()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


SNAPSHOTS = snapshots_name("application")


def keeping() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", key=bytes, value=bytes, materialized="kept").to_stream().to("out")
    return builder.build()


def application(folder: Path, topology: Topology | None = None) -> InProcessQuery:
    """Return a query from its first batch on, because its batch log is in memory."""
    with closing(open_log(StreamsConfig(state_dir=folder))) as log:
        if SNAPSHOTS in log.list_topics():
            log.delete_topic(SNAPSHOTS)
    return InProcessQuery(
        topology or keeping(),
        folder,
        deserialization_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
        statestore_cache_max_bytes=0,
    )


def topics_in(folder: Path) -> Broker:
    """Return a log with the topics of the application."""
    log = open_log(StreamsConfig(state_dir=folder))
    for topic in ("in", "out", "dead"):
        log.create_topic(topic)
    return log


def checkpoint_in(folder: Path) -> Path:
    return embedded_home(folder, "application").checkpoint


def used(folder: Path) -> Path:
    """Return a folder whose application has read a record, and has another before it."""
    log = topics_in(folder)
    log.append([("in", 0, 1, b"k", b"v", [("name", b"x")])])
    log.close()
    query = application(folder)
    query.run()
    query.log.append([("in", 0, 1, b"k", b"not read yet", [("name", b"x")])])
    query.log.close()
    return folder


def test_a_bomb_explodes_if_it_is_unpickled(tmp_path: Path) -> None:
    bomb = Bomb(tmp_path / "exploded")

    for data in bombs(bomb):
        pickle.loads(data)
        assert bomb.mark.exists()
        bomb.mark.unlink()


@pytest.mark.parametrize("name", SERDES)
def test_records_are_data_to_every_serde(name: str, bomb: Bomb, tmp_path: Path) -> None:
    log = open_log(StreamsConfig(state_dir=tmp_path))
    for topic in ("in", "out", "dead"):
        log.create_topic(topic)
    log.append(
        [
            ("in", 0, 1, key, data, [("pickle", data)])
            for data in bombs(bomb)
            for key in (b"k", data)
        ]
    )
    builder = StreamsBuilder()
    builder.stream("in", key=StringSerde(), value=SERDES[name]).to("out")

    query = application(tmp_path, builder.build())
    query.run()

    names = [TopicPartition("out", 0), TopicPartition("dead", 0)]
    assert sum(log.end_offsets(names).values()) == 2 * len(bombs(bomb))


def test_a_pickle_in_a_store_is_plain_data(bomb: Bomb, tmp_path: Path) -> None:
    topics_in(tmp_path).close()
    query = application(tmp_path)
    for _ in range(2):
        query.log.append([("in", 0, 1, data, data, [("pickle", data)]) for data in bombs(bomb)])
        query.run()

    out = TopicPartition("out", 0)
    assert query.log.end_offsets([out])[out] == 2 * len(bombs(bomb))


def test_every_column_of_the_embedded_log_is_data(bomb: Bomb, tmp_path: Path) -> None:
    used(tmp_path / "kept")
    columns = list(_columns(tmp_path / "kept"))
    assert len(columns) > 15
    for number, (table, column) in enumerate(columns):
        folder = used(tmp_path / str(number))
        with sqlite3.connect(folder / "topics.db") as file:
            file.execute("PRAGMA ignore_check_constraints = on")
            try:
                file.execute(f"UPDATE {table} SET {column} = ?", (bombs(bomb)[0],))
            except sqlite3.Error:
                continue  # a number of a row can be nothing else
        file.close()
        with suppress(Exception):  # a damaged file may be refused in any words
            application(folder).run()


def _columns(folder: Path) -> Iterator[tuple[str, str]]:
    with sqlite3.connect(folder / "topics.db") as file:
        for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            for column in file.execute(f"PRAGMA table_info({table})"):
                yield table, f'"{column[1]}"'
    file.close()


def test_a_layout_that_is_a_pickle_is_refused(bomb: Bomb, tmp_path: Path) -> None:
    folder = used(tmp_path)
    for data in bombs(bomb):
        (checkpoint_in(folder) / LAYOUT_FILE).write_bytes(data)

        with pytest.raises(CheckpointError, match="cannot be read"):
            application(folder)


def test_a_first_position_that_is_a_pickle_is_refused(bomb: Bomb, tmp_path: Path) -> None:
    folder = used(tmp_path)
    for data in bombs(bomb):
        (checkpoint_in(folder) / FIRST_FILE).write_bytes(data)

        with pytest.raises(CheckpointError, match="cannot be read"):
            application(folder)


@pytest.mark.parametrize("kind", [BatchResult, Control, PlannerStatus])
def test_a_note_that_is_a_pickle_is_refused(kind: type, bomb: Bomb, tmp_path: Path) -> None:
    run_files = RunFiles(tmp_path)
    for data in bombs(bomb):
        (tmp_path / f"{kind.__name__}.json").write_bytes(data)

        with pytest.raises(msgspec.DecodeError):
            run_files.read(kind)


def test_metadata_of_offsets_are_data(bomb: Bomb, tmp_path: Path) -> None:
    folder = used(tmp_path)
    log = open_log(StreamsConfig(state_dir=folder))
    for data in bombs(bomb):
        offset = OffsetAndMetadata(2, data.decode("latin-1"))
        log.commit_offsets("application", {IN: offset})
        (checkpoint_in(folder) / FIRST_FILE).unlink()

        application(folder).run()


def test_metadata_of_a_marker_are_data(bomb: Bomb, tmp_path: Path) -> None:
    folder = used(tmp_path)
    log = open_log(StreamsConfig(state_dir=folder))
    markers = markers_name("application")
    for data in bombs(bomb):
        marker = OffsetAndMetadata(1, data.decode("latin-1"))
        log.commit_offsets(markers, {TopicPartition(markers, 0): marker})

        with pytest.raises(StreamsError):
            application(folder).run()


@pytest.mark.parametrize("name", ["headrace.toml", "settings.properties", "settings.toml"])
def test_a_settings_file_that_is_a_pickle_is_refused(name: str, bomb: Bomb, tmp_path: Path) -> None:
    path = tmp_path / name
    for data in bombs(bomb):
        path.write_bytes(data)

        with pytest.raises(ConfigError, match=name):
            StreamsConfig.load(path)


def test_java_ignores_a_cds_archive_that_is_a_pickle(bomb: Bomb, tmp_path: Path) -> None:
    for data in bombs(bomb):
        archive = tmp_path / "spark.jsa"
        archive.write_bytes(data)
        options = archive_options(archive).split()

        done = subprocess.run(["java", *options, "-version"], capture_output=True, check=False)

        assert (done.returncode, done.stdout) == (0, b"")
