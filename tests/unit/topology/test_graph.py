"""The immutable graph."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from headrace.errors import TopologyError
from headrace.processors.branch import PassThrough
from headrace.serdes import Serdes
from headrace.serdes.slots import SerdeSlot
from headrace.state.specs import Stores
from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import ProcessorNode, SinkNode, SourceNode

KEY, VALUE = SerdeSlot("key", Serdes.string()), SerdeSlot("value", Serdes.long())
STORE = Stores.key_value("store", str, int)


def source(name: str, topic: str) -> SourceNode:
    return SourceNode(name=name, topics=(topic,), key=KEY, value=VALUE)


def step(name: str, *parents: str, priority: int = 0) -> ProcessorNode:
    return ProcessorNode(name=name, parents=parents, operation=PassThrough(), priority=priority)


def graph() -> TopologyGraph:
    """Return source ─┬─ b ── sink, with a second child a."""
    empty = TopologyGraph()
    sink = SinkNode(name="sink", parents=("b",), topic="out", key=KEY, value=VALUE)
    with_source = empty.adding(source("source", "in"))
    return with_source.adding(step("b", "source")).adding(step("a", "source")).adding(sink)


def test_adding_leaves_the_graph_it_was_added_to_alone() -> None:
    empty = TopologyGraph()

    added = empty.adding(source("source", "in"))

    assert (list(empty.nodes), list(added.nodes)) == ([], ["source"])


def test_children_are_in_the_order_they_were_added() -> None:
    assert graph().children() == {"source": ["b", "a"], "b": ["sink"], "a": [], "sink": []}


def test_a_parent_named_twice_has_the_child_once() -> None:
    added = graph().adding(step("c", "b", "b"))

    assert added.children()["b"] == ["sink", "c"]


def test_a_store_is_added_once() -> None:
    once = graph().adding_store(STORE)

    assert list(once.adding_store(STORE).stores) == ["store"]
    with pytest.raises(TopologyError, match="Two stores are called 'store'"):
        once.adding_store(Stores.key_value("store", str, int))


def test_stores_are_connected_in_order_and_once() -> None:
    other = Stores.key_value("other", str, int)
    added = graph().adding_store(STORE).adding_store(other)

    node = added.connecting("a", ["store"]).connecting("a", ["other", "store"]).nodes["a"]

    assert isinstance(node, ProcessorNode)
    assert node.stores == ("store", "other")


def test_nodes_and_stores_can_be_replaced_and_taken_out() -> None:
    changed = graph().adding_store(STORE)

    assert changed.replacing(step("a", "b")).nodes["a"].parents == ("b",)
    assert changed.replacing_store(replace(STORE, caching=True)).stores["store"].caching
    assert list(changed.without(["a", "sink"]).nodes) == ["source", "b"]
    assert list(changed.without_stores(["store"]).stores) == []


def test_reparenting_changes_the_parents_of_every_node_it_should() -> None:
    moved = graph().reparenting(lambda node: ("b",) if node.name == "a" else node.parents)

    assert moved.nodes["a"].parents == ("b",)
    assert moved.nodes["b"] is graph().nodes["b"] or moved.nodes["b"] == graph().nodes["b"]


def test_build_order_puts_parents_first_then_lower_priorities_then_what_was_added_first() -> None:
    nodes = {
        "late": step("late", "source", priority=3),
        "z": step("z", "source", priority=2),
        "a": step("a", "source", priority=2),
        "source": source("source", "in"),
        "child": step("child", "late", "a", priority=1),
    }

    ordered = TopologyGraph(MappingProxyType(nodes)).in_build_order()

    assert list(ordered.nodes) == ["source", "z", "a", "late", "child"]


def test_a_cycle_is_refused() -> None:
    looped = graph().replacing(step("b", "source", "c")).adding(step("c", "b"))

    with pytest.raises(TopologyError, match=r"The steps \['b', 'c', 'sink'\] form a cycle"):
        looped.in_build_order()
