"""The in-process host as tests use it: settings as keywords, and whole stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from headrace.brokers.log import TopicLog
from headrace.config import Settings, StreamsConfig
from headrace.runtime import in_process
from headrace.runtime.checkpoint.batch_log import BatchLog
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.in_process import Blobs, global_task_in, tasks_in
from headrace.runtime.internal_topics import ensure_topic
from headrace.runtime.program import Program
from headrace.spark.batch_log import SPARK_FOLDER
from headrace.testing.stores import driver_store
from headrace.topology.naming import leader_name
from headrace.topology.topology import Topology


def write_query_id(checkpoint: Path) -> None:
    """Write what Spark writes when it starts a query from a checkpoint."""
    path = checkpoint / SPARK_FOLDER / "metadata"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text('{"id": "query"}')


def create_leader_topic(log: TopicLog, config: StreamsConfig) -> None:
    """Create the topic of the leaders, as a leader does."""
    ensure_topic(log, leader_name(config.require_application_id()), 1)


class InProcessQuery(in_process.InProcessQuery):
    """A query over two shuffle partitions that ends with the records there are."""

    def __init__(
        self,
        topology: Topology,
        state_dir: Path,
        /,
        *,
        shuffle_partitions: int = 2,
        seed: int = 0,
        batch_log: BatchLog | None = None,
        leader_epoch: int = 0,
        **settings: Unpack[Settings],
    ) -> None:
        settings.setdefault("application_id", "application")
        config = StreamsConfig(**settings).with_settings(
            state_dir=state_dir, trigger="available_now"
        )
        super().__init__(
            topology,
            config,
            shuffle_partitions=shuffle_partitions,
            seed=seed,
            batch_log=batch_log,
            leader_epoch=leader_epoch,
        )

    def store(self, name: str, clock: int = 0) -> Any:
        """Return a store as blobs hold it; None if there is none of that name.

        Args:
            name: Its name.
            clock: The time of day.
        """
        return store_in(self._blobs, self.program, self.layout, name, clock)


def store_in(
    blobs: Blobs, program: Program, layout: CheckpointLayout, name: str, clock: int = 0
) -> Any:
    """Return a store as blobs hold it, of all its tasks; None if there is none of that name.

    Args:
        blobs: The state of each stage and group.
        program: The program to run.
        layout: The tasks there are.
        name: Its name.
        clock: The time of day.
    """
    if any(name in subtopology.stores for subtopology in program.plan.global_subtopologies):
        stage = program.plan.global_stages()[0]  # each keeps all of them
        return global_task_in(blobs, program, stage, clock).stores[name]
    return driver_store(name, [*tasks_in(blobs, program, layout, name, clock)])
