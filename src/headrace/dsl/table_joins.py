"""Adding a join of two tables by key: its two sides, and where their results meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.dsl.functions import with_key
from headrace.dsl.handles import key_value_store, slot_after, slot_kept
from headrace.dsl.options import Stored, materialized_of
from headrace.processors.table_table_join import TableJoinMerge, TableJoinSide
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import return_serde
from headrace.topology.nodes import ProcessorNode

if TYPE_CHECKING:
    from headrace.dsl.ktable import KTable


@dataclass(frozen=True)
class TableJoin:
    """What a join of two tables by key was asked to do."""

    joiner: Callable[..., Any]
    left_alone: bool
    """Whether a left value has a result without a right one."""
    right_alone: bool
    value: SerdeLike[Any] | None
    materialized: Stored
    name: str | None


def joined_tables(
    left: KTable[Any, Any], right: KTable[Any, Any], join: TableJoin
) -> KTable[Any, Any]:
    """Add a join of two tables and return its table."""
    graph, stored = left.graph, materialized_of(join.materialized)
    store = stored.name
    if join.materialized is not None and store is None:
        store = graph.store_name("KTABLE-MERGE-")
    merge = graph.name("KTABLE-MERGE-", join.name)
    this = graph.suffixed("KTABLE-JOINTHIS-", join.name, "-join-this")
    other = graph.suffixed("KTABLE-JOINOTHER-", join.name, "-join-other")
    key_slot = slot_kept(left.key_slot, stored.key)
    deduced = return_serde(join.joiner)
    value_slot = slot_kept(slot_after("value", merge, join.value, deduced), stored.value)
    sources = left.sources | right.sources
    graph.copartition(sources)
    _add_sides(left, right, replace(join, joiner=with_key(join.joiner, 2, step=merge)), this, other)
    if store is not None:
        graph.add_store(key_value_store(store, stored, key_slot, value_slot))
    graph.add(
        ProcessorNode(
            name=merge,
            parents=(this, other),
            operation=TableJoinMerge(store_name=store),
            stores=() if store is None else (store,),
            versioned=stored.history_retention_ms is not None,
        )
    )
    return replace(
        left,
        node=merge,
        key_slot=key_slot,
        value_slot=value_slot,
        sources=sources,
        queryable_store_name=stored.name,
    )


def _add_sides(
    left: KTable[Any, Any], right: KTable[Any, Any], join: TableJoin, this: str, other: str
) -> None:
    graph = left.graph
    if join.left_alone:
        graph.send_old_values(left.node, materialize=True)
    if join.right_alone:
        graph.send_old_values(right.node, materialize=True)
    for node, is_left in ((this, True), (other, False)):
        table, partner = (left, right) if is_left else (right, left)
        operation = TableJoinSide(
            other=partner.node,
            joiner=join.joiner,
            is_left=is_left,
            alone=join.left_alone if is_left else join.right_alone,
            partner_alone=join.right_alone if is_left else join.left_alone,
        )
        graph.add(
            ProcessorNode(
                name=node,
                parents=(table.node,),
                after=(partner.node,),
                operation=operation,
                stores=graph.look_up(partner.node),
            )
        )
