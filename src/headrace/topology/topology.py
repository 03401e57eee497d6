"""Topology: a handle on an immutable graph, and the low-level way to build one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from headrace.errors import TopologyError
from headrace.processors.api import Processor
from headrace.processors.user_processor import UserProcessor
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import Part, SerdeSlot
from headrace.state.names import checked_name
from headrace.state.specs import StoreBuilder
from headrace.timestamps import TimestampExtractor
from headrace.topology.describe import TopologyDescription
from headrace.topology.graph import TopologyGraph, check_builder
from headrace.topology.lower import LoweredTopology, TopologyDefaults, lower, resolve, rewrite
from headrace.topology.nodes import (
    GlobalStoreNode,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TopicChooser,
    checked_offset_reset,
)
from headrace.topology.pictures import origins_of, picture_from, svg_from
from headrace.topology.suppliers import checked_supplier
from headrace.topology.validate import check_topics


class Topology:
    """Sources, processors and sinks, and the stores between them.

    The DSL builds one with `StreamsBuilder.build`; the ``add_…`` methods build one by hand. They
    replace the graph this handle points to and return the handle: whoever runs the topology takes
    the graph of that moment.
    """

    def __init__(self) -> None:
        self._graph = TopologyGraph()

    @classmethod
    def from_graph(cls, graph: TopologyGraph) -> Topology:
        """Return a handle on a graph that the DSL has built.

        Raises:
            TopologyError: The program is wrong.
        """
        rewrite(graph)  # checks what shows only as a whole
        topology = cls()
        topology._graph = graph
        return topology

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: str | timedelta | None = None,
    ) -> Topology:
        """Add a source that reads topics, or those whose name matches one pattern."""
        pattern = next((topic for topic in topics if isinstance(topic, re.Pattern)), None)
        if pattern is not None and len(topics) > 1:
            msg = f"Source {name!r} was given a pattern and more. Give it one pattern, or topics."
            raise TopologyError(msg)
        names = topics if pattern is None else ()
        graph = self._graph.adding(
            SourceNode(
                name=checked_name(name, what="step"),
                topics=tuple(checked_name(topic, what="topic") for topic in names),  # type: ignore[arg-type]  # says so
                pattern=pattern,
                key=_slot("key", key),
                value=_slot("value", value),
                timestamp_extractor=timestamp_extractor,
                auto_offset_reset=checked_offset_reset(auto_offset_reset, name),
            )
        )
        check_topics(graph)
        self._graph = graph
        return self

    def add_processor(
        self, name: str, supplier: Callable[[], Processor[Any, Any, Any, Any]], *parents: str
    ) -> Topology:
        """Add a processor below its parents; the stores it brings are added and connected."""
        stores = checked_supplier(supplier, name).stores
        node = ProcessorNode(
            name=checked_name(name, what="step"), parents=parents, operation=UserProcessor(supplier)
        )
        graph = self._graph.adding(node)
        for store in stores:
            graph = graph.adding_store(store).connecting(name, [store.name])
        self._graph = graph
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicChooser,
        *parents: str,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """Add a sink that writes to a topic, or to the one ``f(key, value, context)`` chooses."""
        if isinstance(topic, str):
            checked_name(topic, what="topic")
        node = SinkNode(
            name=checked_name(name, what="step"),
            parents=parents,
            topic=topic,
            key=_slot("key", key),
            value=_slot("value", value),
            partitioner=partitioner,
        )
        self._graph = self._graph.adding(node)
        return self

    def add_state_store(self, store: StoreBuilder[Any], *processors: str) -> Topology:
        """Add a store and connect it to processors; one that is used by none is left out."""
        graph = self._graph.adding_store(store)
        for processor in processors:
            graph = graph.connecting(processor, [store.name])
        self._graph = graph
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Connect stores that were added to a processor."""
        self._graph = self._graph.connecting(processor, stores)
        return self

    def add_global_store(
        self,
        store: StoreBuilder[Any],
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Keep a store of a whole topic in every task, maintained by a processor."""
        check_builder(store)
        checked_supplier(supplier, processor_name)
        global_store = replace(store, logging=False, caching=False, logged_for_queries=True)
        graph = self._graph.adding_store(global_store).adding(
            GlobalStoreNode(
                name=checked_name(source_name, what="step"),
                topic=checked_name(topic, what="topic"),
                processor=checked_name(processor_name, what="step"),
                operation=UserProcessor(supplier),
                store=store.name,
                key=_slot("key", key),
                value=_slot("value", value),
                timestamp_extractor=timestamp_extractor,
            )
        )
        check_topics(graph)
        self._graph = graph
        return self

    def describe(self) -> TopologyDescription:
        """Return what the topology is made of; its text is the one Kafka prints."""
        return lower(self._graph).description

    def lowered(self, defaults: TopologyDefaults) -> LoweredTopology:
        """Return what runs with these defaults: optimised, with every serde settled.

        Raises:
            TopologyError: The program is wrong, or a step has no serde.
        """
        return lower(self._graph, defaults)

    def built_with(self, defaults: TopologyDefaults) -> Topology:
        """Return this topology with serdes and optimisations settled by these defaults."""
        built = Topology()
        built._graph = resolve(self._graph, defaults)
        return built

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return what a notebook shows: a picture, and Kafka's text."""
        lowered = lower(self._graph)
        picture = picture_from(lowered.description, origins_of(lowered.graph))
        return {"image/svg+xml": svg_from(picture), "text/plain": str(lowered.description)}

    def __repr__(self) -> str:
        return f"<Topology of {len(self._graph.nodes)} steps>"


def _slot(part: Part, serde: SerdeLike[Any] | None) -> SerdeSlot:
    return SerdeSlot(part, None if serde is None else serde_for(serde))
