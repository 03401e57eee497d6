"""The program: what every process of a query must know, sent to each once and then kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from headrace.brokers.opening import open_log
from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.engine.settings import TaskSettings
from headrace.errors import StreamsError, UnshippableError
from headrace.spark.masters import is_one_process
from headrace.spark.planning.groups import shuffle_partition
from headrace.spark.planning.layout import Layout, TaskPlace
from headrace.spark.planning.plan import SparkPlan
from headrace.spark.processes.own_modules import provide_modules
from headrace.spark.shipping import (
    ShippingError,
    bytes_from_object,
    modules_of,
    object_from_bytes,
)
from headrace.spark.tasks.parcels import Parcel, pack

ROW_SCHEMA = "group int, stage int, target int, blob binary"
"""The rows of the query: the group of the next exchange, then where the parcel is for."""

Row = tuple[int, int, int, bytes]


@dataclass(frozen=True)
class Program:
    """A planned topology with its settings and the part of the layout that never changes."""

    plan: SparkPlan
    config: StreamsConfig
    settings: TaskSettings
    shuffle_partitions: int
    carriers: tuple[int, ...]
    global_groups: tuple[int, ...]
    repartitions: Mapping[str, int]
    readers: Mapping[str, tuple[int, tuple[TaskPlace, ...]]]
    """For each repartition the sub-topology that reads it, and its tasks."""
    partition_counts: Mapping[str, int]
    """The partitions of the topics that are known to be written."""
    run_directory: str
    """Where the processes of the driver leave notes for each other."""
    generation: int
    """Which leader of the application it runs for; later ones have higher numbers."""
    epochs_id: str = ""
    """The id of the topic of markers, if they are sealed."""

    @property
    def sink_stage(self) -> int:
        """The number that stands for the sink among the stages."""
        return self.plan.stages + 1

    def row(self, stage: int, target: int, parcel: Parcel, *, next_stage: int) -> Row:
        """Return a row with a parcel on its way.

        Args:
            stage: The stage that the parcel is for.
            target: The group that it is for; of what a task wrote, the group of the task.
            parcel: The parcel.
            next_stage: The stage the row goes to first.
        """
        return self.route(stage, target, pack(parcel), next_stage)

    def route(self, stage: int, target: int, blob: bytes, next_stage: int) -> Row:
        """Return the row that brings a packed parcel to its next stage."""
        if stage == next_stage:
            return target, stage, target, blob
        carrier = self.carriers[shuffle_partition(target, self.shuffle_partitions)]
        return carrier, stage, target, blob

    def partitions_of(self, log: Callable[[], Broker]) -> Callable[[str], int]:
        """Return the function that tells a task how many partitions a topic has."""

        def count(topic: str) -> int:
            known = self.repartitions.get(topic) or self.partition_counts.get(topic)
            return log().partition_count(topic) if known is None else known

        return count


def make_program(
    plan: SparkPlan,
    config: StreamsConfig,
    layout: Layout,
    *,
    partition_counts: Mapping[str, int],
    run_directory: str,
    generation: int,
) -> Program:
    """Return what the processes of a query must know."""
    readers: dict[str, tuple[int, tuple[TaskPlace, ...]]] = {}
    for part in plan.parts:
        for topic in part.repartitions:
            places = (layout.place(part.id, p) for p in range(layout.repartitions[topic]))
            readers[topic] = (part.id, tuple(places))
    return Program(
        plan=plan,
        config=config,
        settings=TaskSettings.from_config(config, application_id=plan.application_id),
        shuffle_partitions=layout.shuffle_partitions,
        carriers=tuple(layout.carriers),
        global_groups=tuple(layout.global_groups),
        repartitions=dict(layout.repartitions),
        readers=readers,
        partition_counts=dict(partition_counts),
        run_directory=run_directory,
        generation=generation,
        epochs_id=layout.epochs_id,
    )


@dataclass(frozen=True)
class ShippedProgram:
    """A program as bytes, which a process unpacks when it sees it for the first time."""

    data: bytes = field(repr=False)
    digest: str
    modules: bytes = field(default=b"", repr=False)
    """The user's own modules, for processes that cannot find them."""

    @classmethod
    def of(cls, program: Program) -> ShippedProgram:
        """Return a program ready to be sent.

        Raises:
            UnshippableError: Something in it belongs to this process: a lock, a file, a connection;
                or workers would get something else.
        """
        with_modules = not is_one_process(program.config)
        try:
            data = bytes_from_object(program)
            modules = modules_of(data) if with_modules else b""
            shipped = cls(data, hashlib.sha256(data + modules).hexdigest(), modules)
            _made_here.add(shipped.digest)
            _unpacked(shipped)
        except Exception as error:
            raise _unshippable(program, error, with_modules=with_modules) from error
        return shipped

    def program(self) -> Program:
        """Return the program.

        Raises:
            UnshippableError: This process misses something that the driver has.
        """
        try:
            return _unpacked(self)
        except ShippingError as error:
            raise UnshippableError(
                None,
                origin=None,
                reason=str(error),
                remedy="Give them what it needs: the packages that are installed here, "
                "and the files that your modules read.",
            ) from error

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShippedProgram) and self.digest == other.digest


_made_here: set[str] = set()
"""The digests of what this process sends to others, and has the modules of."""


@lru_cache(maxsize=4)
def _unpacked(shipped: ShippedProgram) -> Program:
    if shipped.digest not in _made_here:
        provide_modules(shipped.modules)
    program = object_from_bytes(shipped.data)
    assert isinstance(program, Program)
    return program


def _unshippable(program: Program, error: Exception, *, with_modules: bool) -> StreamsError:
    """Say which step cannot be sent to other processes."""
    for planned in program.plan.parts:
        for node in planned.part.nodes.values():
            try:
                data = bytes_from_object(node)
                object_from_bytes(data)
                if with_modules:
                    modules_of(data)
            except Exception as own:  # whatever pickling it raises
                return _refusal(node.name, node.origin, own)
    return _refusal(None, None, error)


def _refusal(node: str | None, origin: str | None, error: Exception) -> StreamsError:
    if isinstance(error, ShippingError):
        return UnshippableError(node, origin=origin, reason=str(error), remedy=error.remedy)
    reason = f"{type(error).__name__}: {error}".rstrip(".")
    return UnshippableError(node, origin=origin, reason=reason)


@lru_cache(maxsize=4)
def worker_log(shipped: ShippedProgram) -> Broker:
    """Return the log of a program, kept open by the worker that reads or writes it."""
    return open_log(shipped.program().config)
