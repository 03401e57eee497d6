"""Follows one record through the steps of an example, on the test driver."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeAlias

from headrace.app import KafkaStreams
from headrace.config.topology_defaults import topology_defaults
from headrace.examples.checking import DriverRun
from headrace.examples.feeding import Feed, FeedRecord
from headrace.processors.operation import TableOperation
from headrace.records import ValueAndTimestamp
from headrace.testing import TopologyTestDriver
from headrace.topology.nodes import Node, ProcessorNode, SinkNode

_LONGEST = 90
"""How many characters of a key and a value are shown."""

Row: TypeAlias = tuple[str, str, str]
"""The kind of a line, a name, and a key with its value."""


class Tracer:
    """Writes down each step of a record: the node, indented below its parent, key and value."""

    def __init__(self, app: KafkaStreams) -> None:
        lowered = app.topology.lowered(topology_defaults(app.config))
        self._nodes = lowered.graph.nodes
        self._depths: dict[str, int] = {}
        self.rows: list[Row] = []

    def step(self, name: str, key: Any, value: Any, _timestamp: int) -> None:
        """Write down that a node is about to handle a record."""
        node = self._nodes[name]
        seen = [self._depths[parent] for parent in node.parents if parent in self._depths]
        self._depths[name] = depth = seen[-1] + 1 if seen else 1
        if any(_is_table(self._nodes[parent]) for parent in node.parents):
            value = _change(value)
        if isinstance(node, SinkNode) and not node.internal:
            self.rows.append(("out", str(node.topic), f"{key}: {value}"))
        else:
            self.rows.append(("", "  " * depth + name, f"{key}: {value}"))


def trace(app: KafkaStreams, feed: Feed) -> list[str]:
    """Return lines about one record of a feed: its steps, and the entries of stores it changes.

    The records before it are processed without a word. It is the first one, or the one with the
    number ``TRACED`` of the feed.
    """
    number = getattr(feed, "TRACED", 0)
    *before, followed = islice(feed.feed(), number + 1)
    tracer = Tracer(app)
    with TopologyTestDriver(
        app.topology,
        app.config,
        on_step=tracer.step,
        initial_wall_clock_time=followed.timestamp,
    ) as driver:
        run = DriverRun(app, driver)
        run.write(before)
        tracer.rows.clear()
        entries = _entries(driver)
        run.write([followed])
        start = ("in", followed.topic, f"{_time(followed)}  {followed.key}: {followed.value}")
        changed = _entries(driver).items() - entries.items()
        dropped = run.dropped()
    rows = [start, *tracer.rows]
    rows += [("store", store, f"{key}: {value}") for (store, key), value in sorted(changed)]
    rows += [("dropped", reason, str(count)) for reason, count in dropped.items()]
    width = max(len(name) for _, name, _ in rows)
    return [f"{what:7} {name:{width}}  {_short(content)}" for what, name, content in rows]


def _entries(driver: TopologyTestDriver) -> dict[tuple[str, str], str]:
    """Return the entries of all stores as text."""
    found = {}
    for name, store in driver.get_all_state_stores().items():
        for key, value in getattr(store, "all", tuple)():  # the buffer of `suppress` has none
            plain = value.value if isinstance(value, ValueAndTimestamp) else value
            found[name, str(key)] = str(plain)
    return found


def _is_table(node: Node) -> bool:
    return isinstance(node, ProcessorNode) and isinstance(node.operation, TableOperation)


def _change(value: Any) -> Any:
    """Return the new value of a change, with the old one if the step gets it."""
    if not isinstance(value, tuple) or len(value) != 3:
        return value  # `to_stream` is a step of a table that sends plain values
    new, old, _ = value
    return f"{new} (was {old})" if old is not None else new


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _time(record: FeedRecord) -> str:
    time = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
