"""Adds a user's processor: checks its supplier, and connects its stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.dsl.handles import Handle
from headrace.errors import TopologyError
from headrace.processors.api import FixedKeyProcessor, Processor
from headrace.processors.user_processor import UserProcessor
from headrace.serdes.deduce import Deduced, argument_serdes
from headrace.state.names import checked_name
from headrace.state.specs import StoreBuilder
from headrace.topology.nodes import ProcessorNode
from headrace.topology.suppliers import checked_supplier


def add_processor_step(
    stream: Handle,
    node: str,
    supplier: Callable[[], Any],
    stores: Iterable[str | StoreBuilder[Any]],
    *,
    fixed_key: bool = False,
) -> list[Deduced]:
    """Add the node of a processor and connect its stores; return the serdes of its type arguments.

    Raises:
        TopologyError: The supplier does not return new processors, or a store is unknown.
    """
    checked_name(node, what="step")
    supplied = checked_supplier(supplier, node, fixed_key=fixed_key)
    stream.graph.add(
        ProcessorNode(
            name=node,
            parents=(stream.node,),
            operation=UserProcessor(supplier, fixed_key=fixed_key),
        )
    )
    connect_stores(stream, node, stores, supplied.stores)
    return argument_serdes(supplied.type, FixedKeyProcessor if fixed_key else Processor)


def connect_stores(
    stream: Handle,
    node: str,
    stores: Iterable[str | StoreBuilder[Any]],
    own: Iterable[StoreBuilder[Any]],
) -> None:
    """Add the stores that are builders, and connect all of them.

    ``own`` are the stores that the user's class itself returns.
    """
    if isinstance(stores, str) or not isinstance(stores, Iterable):
        msg = f"`stores=` of step {node!r} is {stores!r}. Give it a list: `stores=[{stores!r}]`."
        raise TopologyError(msg)
    names = []
    for store in (*stores, *own):
        if isinstance(store, str):
            names.append(store)
        else:
            stream.graph.add_store(store)
            names.append(store.name)
    stream.graph.connect(node, names)
