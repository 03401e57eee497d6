"""The application in a process of its own, without Spark: ``python -m chaos.queries.running``.

Its checkpoint is on disk, so it can be killed at any instant. It plans a batch, writes it, keeps
the state and commits, as Spark does. The file ``die`` in its folder names the place of a batch at
which it kills itself. A second process of the same folder stands by until the first has ended, or
until the file ``leading``, which the first has locked, is removed: the session of a leader that
stands still has ended. Each leader copies the checkpoint, so that such a one changes only its own.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.queries.program import APPLICATION, SETTINGS, topology
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.config import StreamsConfig
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.batch_log import MemoryBatchLog, unfinished_batch
from headrace.runtime.in_process import InProcessQuery
from headrace.runtime.internal_topics import ensure_topic
from headrace.runtime.output.batch_writer import BatchWriter
from headrace.topology.naming import leader_name

HALF_WRITTEN, NOT_RECORDED = "half-written", "not-recorded"
"""Where it may kill itself: between the transactions of a batch, or before the snapshot record."""
DIE, LEADING = "die", "leading"
STANDS_BY = "this process stands by"
"""A process that stands by prints it, as one on Spark does."""

_QUERY_ID = "c4a05000-0000-0000-0000-000000000000"
_PAUSE_SECONDS = 0.25
_LOOK_SECONDS = 0.05
_REQUEST_TIMEOUT = "60s"
"""The loss of one of three brokers must not end the process."""


class Checkpoint:
    """The batches and the state of the application, in files that are replaced as a whole.

    Args:
        folder: Has a folder for each leader.
    """

    def __init__(self, folder: Path) -> None:
        earlier = (
            sorted(folder.iterdir(), key=lambda each: int(each.name)) if folder.exists() else []
        )
        self.leader_epoch = len(earlier)
        """The number of this process among the leaders."""
        self._folder = folder / str(self.leader_epoch)
        if earlier:
            shutil.copytree(earlier[-1], self._folder)
        else:
            self._folder.mkdir(parents=True)
        self.batch_log = DurableBatchLog(self._folder)

    def load(self, query: InProcessQuery, batch: int) -> None:
        """Set the state of a query to that after a batch."""
        if batch < 0:
            return
        for stage, key, blobs in msgspec.msgpack.decode(self._state(batch).read_bytes()):
            query._blobs[stage, key].apply(dict(blobs))  # noqa: SLF001  # as tests do

    def save(self, query: InProcessQuery, batch: int) -> None:
        """Keep the state after a batch, beside the one before."""
        rows = [
            (stage, key, [*blobs.blobs.items()])
            for (stage, key), blobs in query._blobs.items()  # noqa: SLF001  # as tests do
        ]
        _replace(self._state(batch), msgspec.msgpack.encode(rows))
        self._state(batch - 2).unlink(missing_ok=True)

    def _state(self, batch: int) -> Path:
        return self._folder / f"state-{batch}"


class DurableBatchLog(MemoryBatchLog):
    """A batch log that survives its process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(_QUERY_ID)
        self._folder = folder
        if (folder / "ends").exists():
            ends = msgspec.json.decode((folder / "ends").read_bytes(), type=list[BatchBoundary])
            self._ends = ends
        if (folder / "committed").exists():
            self._committed = int((folder / "committed").read_text())

    def plan(self, batch: int, end: BatchBoundary) -> None:
        super().plan(batch, end)
        _replace(self._folder / "ends", msgspec.json.encode(self._ends))

    def commit(self, batch: int) -> None:
        super().commit(batch)
        _replace(self._folder / "committed", b"%d" % batch)


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    new.replace(path)


class DurableQuery(InProcessQuery):
    """A query that keeps its state after each batch, before it commits it."""

    checkpoint: Checkpoint

    def replay(self, start: BatchBoundary, end: BatchBoundary) -> None:
        super().replay(start, end)
        self.checkpoint.save(self, self.batches)


def open_query(config: StreamsConfig, folder: Path) -> DurableQuery:
    """Return the query of a new leader, after the batch that its predecessor left unfinished."""
    checkpoint = Checkpoint(folder)
    epoch = checkpoint.leader_epoch
    group = leader_name(APPLICATION)
    log = open_log(config)
    ensure_topic(log, group, 1)
    log.commit_offsets(group, {TopicPartition(group, 0): OffsetAndMetadata(epoch)})
    log.close()
    batch_log = checkpoint.batch_log
    query = DurableQuery(
        topology(), config, shuffle_partitions=2, batch_log=batch_log, leader_epoch=epoch
    )
    query.checkpoint = checkpoint
    planned, unfinished = batch_log.last_planned(), unfinished_batch(batch_log)
    finished = planned if unfinished is None else unfinished - 1
    checkpoint.load(query, finished)
    start = batch_log.end_of(finished)
    query.position = query.position if start is None else start
    query.batches = finished + 1
    if unfinished is not None:
        end = batch_log.end_of(unfinished)
        assert end is not None, "planned"
        query.replay(query.position, end)
        batch_log.commit(unfinished)
        query.position, query.batches = end, unfinished + 1
    return query


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at(moment: str, query: DurableQuery) -> None:
    """End the process at a place of the next batch."""
    if moment == HALF_WRITTEN:
        write: Callable[..., Any] = BatchWriter.write

        def write_and_die(writer: BatchWriter, *arguments: Any) -> None:
            write(writer, *arguments)
            _die()

        BatchWriter.write = write_and_die  # type: ignore[method-assign, assignment]
    else:
        assert query.planner.snapshots is not None, "there are stores"
        query.planner.snapshots.step = _die  # type: ignore[method-assign]


def lead(folder: Path, over: threading.Event) -> bool:
    """Wait until no other process leads; return False if this one is to end before that."""
    said = False
    while True:
        file = os.open(folder / LEADING, os.O_CREAT | os.O_RDWR)  # locked until the process ends
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            if not said:
                print(STANDS_BY, flush=True)
            said = True
        else:
            return True
        if over.wait(_LOOK_SECONDS):
            return False


def _run(query: DurableQuery, die: Path, over: threading.Event) -> None:
    while not over.wait(_PAUSE_SECONDS):
        if die.exists():
            moment = die.read_text()
            die.unlink()
            _die_at(moment, query)
        if not query.batch() and query.planner.snapshots is not None:
            query.planner.snapshots.step()


def main() -> None:
    """Run batches until a signal ends it in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bootstrap-servers")
    parser.add_argument("--guarantee", default="exactly_once_v2")
    given = parser.parse_args()
    settings: dict[str, Any] = {"processing_guarantee": given.guarantee}
    if given.bootstrap_servers:
        settings["bootstrap_servers"] = given.bootstrap_servers
    config = (
        StreamsConfig(
            application_id=APPLICATION,
            state_dir=given.folder / "state",
            trigger="available_now",
            request_timeout=_REQUEST_TIMEOUT,
        )
        .with_settings(**settings)
        .overlaid_by(StreamsConfig.from_properties(SETTINGS))
    )
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    if lead(given.folder, over):
        query = open_query(config, given.folder / "checkpoint")
        _run(query, given.folder / DIE, over)


if __name__ == "__main__":
    main()
