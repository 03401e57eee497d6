"""The cuts of a topology."""

from __future__ import annotations

from typing import Any

from headrace import Processor, Record, Stores, StreamsBuilder, Topology
from headrace.topology.lower import TopologyDefaults
from headrace.topology.subtopologies import Subtopology


class Nothing(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None: ...


def subtopologies(topology: Topology) -> list[Subtopology]:
    return topology.lowered(TopologyDefaults()).subtopologies


def test_unconnected_nodes_are_separate_subtopologies() -> None:
    topology = Topology()
    for name in ("b", "a"):
        topology.add_source(f"source-{name}", name, key=str, value=int)
        topology.add_sink(f"sink-{name}", f"{name}-out", f"source-{name}", key=str, value=int)

    assert [list(subtopology.nodes) for subtopology in subtopologies(topology)] == [
        ["source-b", "sink-b"],
        ["source-a", "sink-a"],
    ]


def test_a_repartition_cuts() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int, name="in").repartition(name="r").to("out", name="out")

    assert [list(subtopology.nodes) for subtopology in subtopologies(builder.build())] == [
        ["in", "r-repartition-filter", "r-repartition-sink"],
        ["r-repartition-source", "out"],
    ]


def test_a_shared_store_brings_together() -> None:
    store = Stores.key_value("s", str, int)
    topology = Topology()
    for name in ("a", "b", "c"):
        topology.add_source(f"source-{name}", name, key=str, value=int)
        topology.add_processor(name, Nothing, f"source-{name}")
    topology.add_state_store(store, "a", "c")

    found = subtopologies(topology)

    assert [sorted(subtopology.nodes) for subtopology in found] == [
        ["a", "c", "source-a", "source-c"],
        ["b", "source-b"],
    ]
    assert [list(subtopology.stores) for subtopology in found] == [["s"], []]
    assert [source.name for source in found[0].sources] == ["source-a", "source-c"]


def test_a_global_store_is_a_part_of_its_own() -> None:
    store = Stores.key_value("s", str, int)
    topology = Topology()
    topology.add_global_store(store, "g", "topic", "p", Nothing, key=str, value=int)
    topology.add_source("source", "in", key=str, value=int)

    assert [(subtopology.id, subtopology.is_global) for subtopology in subtopologies(topology)] == [
        (0, True),
        (1, False),
    ]


def test_an_unused_store_is_left_out() -> None:
    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_state_store(Stores.key_value("unused", str, int))

    assert [list(subtopology.stores) for subtopology in subtopologies(topology)] == [[]]
