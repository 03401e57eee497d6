"""The contexts through which operations and processors use their task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.durations import Duration
from headrace.engine.error_text import describe_error
from headrace.engine.punctuation import Schedule, new_schedule
from headrace.errors import (
    ProcessingError,
    RecordError,
    StreamsError,
    SuppressBufferFullError,
    TopologyError,
    UnknownStoreError,
)
from headrace.processors.api import Cancellable, PunctuationType
from headrace.processors.operation import Process, ValueGetter
from headrace.processors.plain_functions import check_plain
from headrace.records import ConsumerRecord, Headers, Record, RecordMetadata, Timestamp
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import GlobalStoreNode, Node

if TYPE_CHECKING:
    from headrace.engine.task import Task


class BoundNode:
    """A node of a task as its operation sees it: a `NodeContext`."""

    def __init__(
        self,
        task: Task,
        node: Node,
        children: dict[str, Process],
        stores: tuple[str, ...],
        times: MutableMapping[str, int],
    ) -> None:
        self.name = node.name
        self.times = times
        self.forward = _to_all(tuple(children.values()))
        self._task = task
        self._node = node
        self._children = children
        self._stores = stores

    def children(self) -> dict[str, Process]:
        return self._children

    def fail(
        self, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers
    ) -> None:
        if isinstance(error, RecordError | SuppressBufferFullError) and error.node != self.name:
            raise error  # a child's, already decided: a full cache forwards while it writes
        task = self._task
        record = Record(key, value, timestamp, headers)
        origin = self._node.origin
        task.failures.processing(error, task.record, self.name, origin, record, timestamp)

    def drop(self, reason: str) -> None:
        self._task.drop(self.name, reason)

    def count(self, event: str, times: int) -> None:
        self._task.count(self.name, event, times)

    def store(self, name: str) -> Any:
        if name in self._stores:
            return self._task.stores[name]
        if name in self._task.global_stores:
            return self._task.global_stores[name]
        raise UnknownStoreError(name, node=self.name, connected=self._stores)

    def getter(self, table: str) -> ValueGetter:
        return self._task.getter(table, self)

    def on_start(self, action: Callable[[], None]) -> None:
        self._task.start_actions.append(action)

    def on_commit(self, action: Callable[[], None]) -> None:
        self._task.commit_actions.append(action)

    def on_close(self, action: Callable[[], None]) -> None:
        self._task.close_actions.append(action)

    def processor_context(self) -> UserContext:
        if isinstance(self._node, GlobalStoreNode):
            return UserContext(self._task, self, _GLOBAL_PROCESSOR)
        return UserContext(self._task, self)

    def transformer_context(self) -> UserContext:
        return UserContext(self._task, self, _TRANSFORMER)

    @property
    def origin(self) -> str | None:
        """The line of the program that made the node."""
        return self._node.origin

    @property
    def record(self) -> ConsumerRecord | None:
        return self._task.record

    @record.setter
    def record(self, record: ConsumerRecord | None) -> None:
        self._task.record = record

    @property
    def partition(self) -> int:
        return self._task.partition

    @property
    def application_id(self) -> str:
        return self._task.settings.application_id

    @property
    def task_id(self) -> str:
        return self._task.id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        raw = self._task.record
        return None if raw is None else RecordMetadata(raw.topic, raw.partition, raw.offset)

    def commit(self) -> None:
        self._task.commit_requested = True

    def get_state_store(self, store: StoreBuilder[Any] | str, /) -> Any:
        return self.store(store if isinstance(store, str) else store.name)

    def current_stream_time_ms(self) -> int:
        return self._task.stream_time

    def current_system_time_ms(self) -> int:
        return self._task.wall_clock

    def app_configs(self) -> Mapping[str, Any]:
        return self._task.settings.app_configs

    def schedule(
        self,
        interval: Duration,
        punctuation_type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start_time: Timestamp | None = None,
    ) -> Cancellable:
        raise NotImplementedError  # operations of the DSL follow stream time by themselves


class _Role(NamedTuple):
    """The role of a user's class at its node, and its limits."""

    name: str
    forwards: bool
    schedules: bool


_PROCESSOR = _Role("processor", forwards=True, schedules=True)
_TRANSFORMER = _Role("transformer", forwards=False, schedules=True)
_GLOBAL_PROCESSOR = _Role("processor of a global store", forwards=False, schedules=False)


class UserContext:
    """The context of a user's processor: a `ProcessorContext`, also with the key fixed."""

    def __init__(self, task: Task, node: BoundNode, role: _Role = _PROCESSOR) -> None:
        self._task = task
        self._node = node
        self._role = role
        self._processor: Any = None
        self._made_in_init: list[Schedule] | None = None

    def initialise(self, processor: Any) -> None:
        """Initialise a new processor; it takes over the schedules of the former one."""
        for name in ("init", "process", "transform"):
            what = f"`{name}` of the {self._role.name} at {self._node.name!r}"
            check_plain(getattr(processor, name, None), what, may_yield=False)
        self._processor = processor
        processor.context = self
        made: list[Schedule] = []
        self._made_in_init = made
        try:
            processor.init(self)
        except StreamsError:
            raise
        except Exception as error:
            raise self._failed(error, "init") from error
        finally:
            self._made_in_init = None
        self._task.schedules.renew(self._node.name, processor, made)

    def close(self, processor: Any) -> None:
        try:
            processor.close()
        except StreamsError:
            raise
        except Exception as error:
            raise self._failed(error, "close") from error

    def _failed(self, error: Exception, method: str) -> ProcessingError:
        node = self._node
        msg = (
            f"The {self._role.name} at {node.name!r} failed in `{method}`: {describe_error(error)}."
        )
        failure = ProcessingError(msg, node=node.name)
        if node.origin is not None:
            failure.add_note(f"The step was made at {node.origin}.")
        return failure

    @property
    def application_id(self) -> str:
        return self._node.application_id

    @property
    def task_id(self) -> str:
        return self._node.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._node.record_metadata

    def forward(self, record: Any, child: str | None = None) -> None:
        if not self._role.forwards:
            msg = (
                f"The {self._role.name} at {self._node.name!r} forwarded a record, but it has no "
                "children. Use a `Processor` on a stream for that."
            )
            raise TopologyError(msg)
        if child is None:
            target = self._node.forward
        else:
            children = self._node.children()
            if child not in children:
                msg = (
                    f"Processor {self._node.name!r} forwarded to {child!r}, which is not its "
                    f"child. Its children are {list(children)}."
                )
                raise TopologyError(msg)
            target = children[child]
        target(record.key, record.value, record.timestamp, record.headers)

    def commit(self) -> None:
        self._node.commit()

    def get_state_store(self, store: StoreBuilder[Any] | str, /) -> Any:
        return self._node.get_state_store(store)

    def schedule(
        self,
        interval: Duration,
        punctuation_type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start_time: Timestamp | None = None,
    ) -> Cancellable:
        task = self._task
        if not self._role.schedules:
            msg = (
                f"The {self._role.name} at {self._node.name!r} made a schedule, but it only "
                "follows its topic. Schedule in a processor that reads the store."
            )
            raise TopologyError(msg)
        if callable(punctuator):
            what = f"The punctuator of the {self._role.name} at {self._node.name!r}"
            check_plain(punctuator, what, may_yield=False)
        schedule = new_schedule(
            self._node.name,
            interval,
            punctuation_type,
            punctuator,
            start_time=start_time,
            now=task.wall_clock,
        )
        if self._made_in_init is not None:
            return task.schedules.in_init(self._made_in_init, schedule, punctuator)
        return task.schedules.in_process(self._processor, schedule, punctuator)

    def current_stream_time_ms(self) -> int:
        return self._node.current_stream_time_ms()

    def current_system_time_ms(self) -> int:
        return self._node.current_system_time_ms()

    def app_configs(self) -> Mapping[str, Any]:
        return self._node.app_configs()

    @contextmanager
    def without_record(self) -> Iterator[None]:
        """Hide the current record: a look-up does not know which record made the value."""
        task = self._task
        current, task.record = task.record, None
        try:
            yield
        finally:
            task.record = current


def _to_all(children: tuple[Process, ...]) -> Process:
    if not children:
        return _to_nobody
    if len(children) == 1:
        return children[0]

    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    return forward


def _to_nobody(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """Forward to no child."""
