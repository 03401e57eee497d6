"""Adds the joins of a stream: with a stream, a table or a global table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from headrace.dsl.functions import checked_arity, with_key
from headrace.dsl.global_ktable import GlobalKTable
from headrace.dsl.handles import Handle, checked_together, slot_after
from headrace.dsl.options import StoreType
from headrace.dsl.window_stores import refuse_overrides
from headrace.durations import Duration, duration_ms
from headrace.errors import TopologyError
from headrace.processors.branch import PassThrough
from headrace.processors.stream_stream_join import (
    OuterStreamStreamJoin,
    RememberForJoin,
    SelfJoin,
    StreamStreamJoin,
)
from headrace.processors.stream_table_join import (
    StreamGlobalTableJoin,
    StreamTableJoin,
    StreamTableJoinWithGrace,
)
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import return_serde
from headrace.serdes.slots import SerdeSlot
from headrace.state.join_stores import LEFT, RIGHT
from headrace.state.names import checked_name
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.lookup import type_of
from headrace.topology.graph import StreamJoin
from headrace.topology.nodes import ProcessorNode
from headrace.windows.join_windows import JoinWindows

if TYPE_CHECKING:
    from headrace.dsl.kstream import KStream
    from headrace.dsl.ktable import KTable

Kind: TypeAlias = Literal["join", "left_join", "outer_join"]
"""Which records without a partner have a result: none, those of the left side, or all."""


@dataclass(frozen=True)
class JoinOptions:
    """The options of a join besides the other side and the joiner; not all fit every join."""

    kind: Kind
    windows: JoinWindows | None = None
    on: Callable[[Any, Any], Any] | None = None
    value: SerdeLike[Any] | None = None
    grace: Duration | None = None
    store_name: str | None = None
    store_type: StoreType | None = None
    logging: bool | Mapping[str, str] = True
    name: str | None = None

    @property
    def step(self) -> str:
        """The name of the step in an error."""
        return self.name or self.kind


def joined(
    stream: KStream[Any, Any], other: object, joiner: Callable[..., Any], options: JoinOptions
) -> KStream[Any, Any]:
    """Add the join of a stream with a stream, table or global table, and return its result.

    Raises:
        TopologyError: ``other`` is something else, or an option does not fit it.
    """
    from headrace.dsl.ktable import KTable  # each needs the other's class

    if isinstance(other, Handle):
        checked_together(stream, other, step=options.step)
    if isinstance(other, KTable):
        _refuse(options, "a stream and a table", ("windows", "on", "store_name", "store_type"))
        return _joined_with_table(stream, other, joiner, options)
    if isinstance(other, GlobalKTable):
        excess = ("windows", "grace", "store_name", "store_type")
        _refuse(options, "a stream and a global table", excess)
        return _joined_with_global_table(stream, other, joiner, options)
    if isinstance(other, type(stream)):
        _refuse(options, "two streams", ("on", "grace"))
        return _joined_with_stream(stream, other, joiner, options)
    msg = (
        f"Step {options.step!r} cannot join a stream with {other!r}. "
        "Join it with a KStream, a KTable or a GlobalKTable."
    )
    raise TopologyError(msg)


def _refuse(options: JoinOptions, what: str, excess: tuple[str, ...]) -> None:
    for name in excess:
        if getattr(options, name) is not None:
            msg = f"Step {options.step!r} joins {what}, so `{name}` has no meaning. Leave it out."
            raise TopologyError(msg)


def _joined_with_table(
    stream: KStream[Any, Any],
    table: KTable[Any, Any],
    joiner: Callable[..., Any],
    options: JoinOptions,
) -> KStream[Any, Any]:
    graph, left = stream.graph, options.kind == "left_join"
    _check_no_outer(options)
    stream = _partitioned(stream, options.name, suffix="")
    sources = stream.sources | table.sources
    graph.copartition(sources)
    node = graph.name("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-", options.name)
    stores = graph.look_up(table.node)
    operation = StreamTableJoin(table=table.node, joiner=with_key(joiner, 2, step=node), left=left)
    if options.grace is not None:
        grace_ms = _checked_grace(stream, stores, node, options.grace)
        buffer: StoreBuilder[Any] = StoreBuilder(
            name=f"{node}-Buffer",
            kind="join_buffer",
            key=stream.key_slot,
            value=stream.value_slot,
            retention_ms=grace_ms,
            generated_name=options.name is None,
        )
        graph.add_store(buffer)
        stores = (buffer.name, *stores)
        operation = StreamTableJoinWithGrace(
            table=table.node, joiner=operation.joiner, left=left, buffer=buffer.name
        )
    graph.add(
        ProcessorNode(
            name=node,
            parents=(stream.node,),
            operation=operation,
            stores=stores,
            keeps_null_keys=left,
        )
    )
    return replace(
        stream,
        node=node,
        key_slot=_known(stream.key_slot, table.key_slot),
        value_slot=slot_after("value", node, options.value, return_serde(joiner)),
        sources=sources,
    )


def _checked_grace(
    stream: KStream[Any, Any], stores: tuple[str, ...], node: str, grace: Duration
) -> int:
    grace_ms = duration_ms(grace, what="grace")
    if grace_ms < 0:
        msg = f"`grace` of step {node!r} is negative ({grace_ms} ms). Use zero or more."
        raise TopologyError(msg)
    for name in stores:
        store = stream.graph.graph.stores[name]
        if not type_of(store).is_versioned:
            msg = (
                f"Step {node!r} has a `grace`, but its table is not versioned. Give the table "
                "`materialized=Materialized(…, history_retention=…)`, or leave out `grace`."
            )
            raise TopologyError(msg)
        if store.retention_ms < grace_ms:
            msg = (
                f"The `grace` of step {node!r} ({grace_ms} ms) is longer than the table remembers "
                f"({store.retention_ms} ms). Make its `history_retention` at least as long."
            )
            raise TopologyError(msg)
    return grace_ms


def _check_no_outer(options: JoinOptions) -> None:
    if options.kind == "outer_join":
        msg = (
            f"Step {options.step!r} is an outer join with a table, where only the stream's records "
            "are joined. Use `left_join`."
        )
        raise TopologyError(msg)


def _joined_with_global_table(
    stream: KStream[Any, Any],
    table: GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    options: JoinOptions,
) -> KStream[Any, Any]:
    graph, left = stream.graph, options.kind == "left_join"
    _check_no_outer(options)
    # Kafka uses this prefix for both kinds.
    node = graph.name("KSTREAM-LEFTJOIN-", options.name)
    if options.on is None:
        msg = (
            f"Step {node!r} joins a global table, so it needs a function for the key to look up. "
            "Give it `on=f(key, value)`."
        )
        raise TopologyError(msg)
    checked_arity(options.on, 2, step=node)
    graph.add(
        ProcessorNode(
            name=node,
            parents=(stream.node,),
            operation=StreamGlobalTableJoin(
                store_name=table.store,
                key_of=options.on,
                joiner=with_key(joiner, 2, step=node),
                left=left,
            ),
            keeps_null_keys=left,
        )
    )
    slot = slot_after("value", node, options.value, return_serde(joiner))
    return replace(stream, node=node, value_slot=slot)


class _Names(NamedTuple):
    """The names of the nodes and stores of a join of two streams, those of `StreamJoin` first."""

    this_window: str
    other_window: str
    this: str
    other: str
    merge: str
    this_store: str
    other_store: str
    unmatched: str


def _names(stream: KStream[Any, Any], options: JoinOptions) -> _Names:
    graph, name = stream.graph, options.name
    outer = options.kind == "outer_join"
    this_prefix = "OUTERTHIS-" if outer else "JOINTHIS-"
    other_prefix = "JOINOTHER-" if options.kind == "join" else "OUTEROTHER-"
    this_suffix = "-outer-this-join" if outer else "-this-join"
    other_suffix = "-other-join" if options.kind == "join" else "-outer-other-join"
    this_window = graph.suffixed("KSTREAM-WINDOWED-", name, "-this-windowed")
    other_window = graph.suffixed("KSTREAM-WINDOWED-", name, "-other-windowed")
    this, other = graph.name(f"KSTREAM-{this_prefix}"), graph.name(f"KSTREAM-{other_prefix}")
    merge = graph.suffixed("KSTREAM-MERGE-", name, "-merge")
    if options.store_name is None:
        stores = (this, other, this.replace(this_prefix, "OUTERSHARED-"))
    else:
        base = checked_name(options.store_name, what="store")
        shared = "-outer-shared-join" if outer else "-left-shared-join"
        stores = (base + this_suffix, base + other_suffix, base + shared)
    if name is not None:
        this, other = name + this_suffix, name + other_suffix
    return _Names(
        this_window, other_window, this, other, merge, *(f"{store}-store" for store in stores)
    )


def _joined_with_stream(
    left: KStream[Any, Any],
    right: KStream[Any, Any],
    joiner: Callable[..., Any],
    options: JoinOptions,
) -> KStream[Any, Any]:
    graph, windows = left.graph, _checked_windows(options)
    left = _partitioned(left, options.name, suffix="-left")
    right = _partitioned(right, options.name, suffix="-right")
    sources = left.sources | right.sources
    graph.copartition(sources)
    names = _names(left, options)
    _add_stores(left, right, names, windows, options)
    for window, side, store in (
        (names.this_window, left, names.this_store),
        (names.other_window, right, names.other_store),
    ):
        graph.add(
            ProcessorNode(
                name=window, parents=(side.node,), operation=RememberForJoin(store), stores=(store,)
            )
        )
    _add_sides(left, names, with_key(joiner, 2, step=names.merge), windows, options)
    return replace(
        left,
        node=names.merge,
        key_slot=_known(left.key_slot, right.key_slot),
        value_slot=slot_after("value", names.merge, options.value, return_serde(joiner)),
        sources=sources,
    )


def _checked_windows(options: JoinOptions) -> JoinWindows:
    if isinstance(options.windows, JoinWindows):
        refuse_overrides(options.windows)
        return options.windows
    instead = "" if options.windows is None else f", not {options.windows!r}"
    msg = (
        f"Step {options.step!r} joins two streams, which needs a JoinWindows{instead}. "
        'Give the largest time between two records: `JoinWindows("5m")`.'
    )
    raise TopologyError(msg)


def _add_stores(
    left: KStream[Any, Any],
    right: KStream[Any, Any],
    names: _Names,
    windows: JoinWindows,
    options: JoinOptions,
) -> None:
    """Add the stores of a join of two streams: one per side, and a shared one unless inner."""
    if options.store_type not in (None, "rocksdb", "in_memory"):
        msg = (
            f"`store_type` of step {options.step!r} is {options.store_type!r}. "
            'Use "rocksdb" or "in_memory".'
        )
        raise TopologyError(msg)

    def add(name: str, value: SerdeSlot, other: SerdeSlot | None = None) -> None:
        store: StoreBuilder[Any] = StoreBuilder(
            name=name,
            kind="window" if other is None else "unmatched",
            key=_known(left.key_slot, right.key_slot),
            value=value,
            other_value=other,
            persistent=None if options.store_type is None else options.store_type == "rocksdb",
            logging=options.logging,
            retention_ms=windows.retention_ms,
            size_ms=windows.size_ms,
            retain_duplicates=other is None,
            generated_name=options.store_name is None,
            joins=True,
        )
        left.graph.add_store(store)

    add(names.this_store, left.value_slot)
    add(names.other_store, right.value_slot)
    if options.kind != "join":
        add(names.unmatched, left.value_slot, right.value_slot)


def _add_sides(
    stream: KStream[Any, Any],
    names: _Names,
    joiner: Callable[[Any, Any, Any], Any],
    windows: JoinWindows,
    options: JoinOptions,
) -> None:
    """Add the nodes that join the records of each side, and the node that merges the results."""
    graph, inner = stream.graph, options.kind == "join"
    for name, side, window, other_store in (
        (names.this, LEFT, names.this_window, names.other_store),
        (names.other, RIGHT, names.other_window, names.this_store),
    ):
        join = StreamStreamJoin(side=side, joiner=joiner, windows=windows, other_store=other_store)
        graph.add(
            ProcessorNode(
                name=name,
                parents=(window,),
                operation=join if inner else _outer(join, names, options),
                stores=(other_store,) if inner else (other_store, names.unmatched),
                keeps_null_keys=not inner,
            )
        )
    both = (names.this, names.other)
    graph.add(ProcessorNode(name=names.merge, parents=both, operation=PassThrough()))
    self_join = SelfJoin(joiner=joiner, windows=windows, store_name=names.this_store)
    graph.add_join(StreamJoin(*names[:-1], self_join=self_join))


def _outer(join: StreamStreamJoin, names: _Names, options: JoinOptions) -> OuterStreamStreamJoin:
    keeps = {LEFT: True, RIGHT: options.kind == "outer_join"}
    return OuterStreamStreamJoin(
        **vars(join),
        unmatched_store=names.unmatched,
        keeps_unmatched=keeps[join.side],
        other_keeps_unmatched=keeps[1 - join.side],
    )


def _partitioned(stream: KStream[Any, Any], name: str | None, *, suffix: str) -> KStream[Any, Any]:
    """Return the stream with its records in the partition of their key.

    Joins without a name share one repartition of the stream.
    """
    if not stream.needs_repartition:
        return stream
    graph = stream.graph
    prefix = stream.node if name is None else checked_name(name + suffix, what="step")
    between = graph.repartition(
        stream.node, prefix, stream.key_slot, stream.value_slot, generated_name=name is None
    )
    node = graph.join_repartitions.get(stream.node)
    if node is None or prefix != stream.node:
        node = graph.join_repartitions[stream.node] = graph.add(between)
    return replace(stream, node=node, sources=frozenset({node}), needs_repartition=False)


def _known(one: SerdeSlot, other: SerdeSlot) -> SerdeSlot:
    """Return the slot that has a serde; both slots are of the same type."""
    return other if one.serde is None and other.serde is not None else one
