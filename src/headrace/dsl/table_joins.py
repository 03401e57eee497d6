"""Adds a join of two tables by key: its two sides, and the node that merges their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.dsl.functions import checked_arity, with_key
from headrace.dsl.handles import add_table, checked_together, slot_after
from headrace.dsl.options import Stored, materialized_of
from headrace.errors import TopologyError
from headrace.processors.table_table_join import TableJoinMerge, TableJoinSide
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import return_serde
from headrace.topology.nodes import Partitioner, ProcessorNode

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable

Kind: TypeAlias = Literal["join", "left_join", "outer_join"]
"""Which rows without a partner have a result: none, those of the left side, or all."""


@dataclass(frozen=True)
class TableJoinOptions:
    """The options of a join of two tables besides the other table and the joiner."""

    kind: Kind
    foreign_key: Callable[..., Any] | None = None
    value: SerdeLike[Any] | None = None
    partitioner: Partitioner | None = None
    """How the left table is partitioned."""
    other_partitioner: Partitioner | None = None
    """How the right table is partitioned."""
    materialized: Stored = None
    name: str | None = None

    @property
    def step(self) -> str:
        """The name of the step in an error."""
        return self.name or self.kind


def check_tables(left: KTable[Any, Any], right: object, options: TableJoinOptions) -> None:
    """Check that two tables and the options fit each other.

    Raises:
        TopologyError: The right side is not a table of this program, or an option does not fit.
    """
    if not isinstance(right, type(left)):
        msg = f"Step {options.step!r} cannot join a table with {right!r}. Join it with a KTable."
        raise TopologyError(msg)
    checked_together(left, right, step=options.step)
    for keyword in ("partitioner", "other_partitioner"):
        partitioner = getattr(options, keyword)
        if partitioner is None:
            continue
        if options.foreign_key is None:
            msg = (
                f"Step {options.step!r} was given `{keyword}=`, which only a join with "
                "`foreign_key=` uses. Leave it out."
            )
            raise TopologyError(msg)
        checked_arity(partitioner, 4, step=options.step)


def joined_by_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    joiner: Callable[..., Any],
    options: TableJoinOptions,
) -> KTable[Any, Any]:
    """Add a join of two tables by key and return its table."""
    graph, stored = left.graph, materialized_of(options.materialized)
    store = stored.name
    if options.materialized is not None and store is None:
        store = graph.store_name("KTABLE-MERGE-")
    merge = graph.name("KTABLE-MERGE-", options.name)
    this = graph.suffixed("KTABLE-JOINTHIS-", options.name, "-join-this")
    other = graph.suffixed("KTABLE-JOINOTHER-", options.name, "-join-other")
    slots = left.key_slot, slot_after("value", merge, options.value, return_serde(joiner))
    sources = left.sources | right.sources
    graph.copartition(sources)
    _add_sides((this, other), (left, right), with_key(joiner, 2, step=merge), options.kind)
    operation = TableJoinMerge(store_name=store)
    return add_table(graph, merge, (this, other), operation, slots, sources, stored, store)


def _add_sides(
    nodes: tuple[str, str],
    tables: tuple[KTable[Any, Any], KTable[Any, Any]],
    joiner: Callable[[Any, Any, Any], Any],
    kind: Kind,
) -> None:
    graph = tables[0].graph
    alone = kind != "join", kind == "outer_join"
    for table, is_alone in zip(tables, alone, strict=True):
        if is_alone:
            graph.send_old_values(table.node, materialize=True)
    for this, other in ((0, 1), (1, 0)):
        operation = TableJoinSide(
            other=tables[other].node,
            joiner=joiner,
            is_left=this == 0,
            alone=alone[this],
            partner_alone=alone[other],
        )
        graph.add(
            ProcessorNode(
                name=nodes[this],
                parents=(tables[this].node,),
                after=(tables[other].node,),
                operation=operation,
                stores=graph.look_up(tables[other].node),
            )
        )
