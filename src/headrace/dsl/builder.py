"""StreamsBuilder: the start of a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, TypeAlias, overload

from headrace.config import StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.dsl.global_ktable import GlobalKTable
from headrace.dsl.graph import GraphBuilder
from headrace.dsl.handles import add_table, key_value_store, slot_after, slot_kept
from headrace.dsl.kstream import KStream
from headrace.dsl.ktable import KTable
from headrace.dsl.options import Stored, materialized_of
from headrace.errors import TopologyError
from headrace.processors.api import Processor
from headrace.processors.table_source import GlobalTableSource, TableSource
from headrace.processors.user_processor import UserProcessor
from headrace.records import K, V
from headrace.serdes.base import SerdeLike
from headrace.state.names import checked_name
from headrace.state.specs import StoreBuilder
from headrace.timestamps import TimestampExtractor
from headrace.topology.graph import check_builder
from headrace.topology.nodes import GlobalStoreNode, SourceNode, checked_offset_reset
from headrace.topology.suppliers import checked_supplier
from headrace.topology.topology import Topology

OffsetReset: TypeAlias = Literal["earliest", "latest", "none"] | timedelta
"""Where a source without committed offsets starts; a timedelta is how far back it starts."""


class StreamsBuilder:
    """Describes a stream application: start with its topics, end with `build`.

    Every step has a generated name; ``name=`` replaces it.
    """

    def __init__(self) -> None:
        self._graph = GraphBuilder()

    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]: ...
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read topics as a stream.

        Args:
            topics: A topic, several, or a pattern that the whole name must match.
            key: Type or serde of the keys; the application's default if left out.
            value: Type or serde of the values; the application's default if left out.
            timestamp_extractor: Returns the time of a record; the application's if left out.
            auto_offset_reset: Where to start without committed offsets.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream(["graz", "linz"], key=str, value=int)
            >>> orders.foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("graz").pipe_input("ada", 27)
            ada 27
            >>> driver.create_input_topic("linz").pipe_input("bob", 3)
            bob 3
        """
        node = self._graph.name("KSTREAM-SOURCE-", name)
        pattern = topics if isinstance(topics, re.Pattern) else None
        source = SourceNode(
            name=node,
            topics=() if isinstance(topics, re.Pattern) else _checked_topics(topics, node),
            pattern=pattern,
            key=slot_after("key", node, key),
            value=slot_after("value", node, value),
            timestamp_extractor=timestamp_extractor,
            auto_offset_reset=checked_offset_reset(auto_offset_reset, node),
            shared=True,
        )
        self._graph.add(source)
        return KStream(node, self._graph, source.key, source.value, frozenset({node}))

    @overload
    def table(
        self,
        topic: str,
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: OffsetReset | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: OffsetReset | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[Any, Any]: ...
    def table(
        self,
        topic: str,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        auto_offset_reset: OffsetReset | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """Read a topic as a table: each record sets its key's value, None deletes it.

        Args:
            topic: The topic.
            key: Type or serde of the keys; the application's default if left out.
            value: Type or serde of the values; the application's default if left out.
            timestamp_extractor: Returns the time of a record; the application's if left out.
            auto_offset_reset: Where to start without committed offsets.
            materialized: How to store the table. A table without a name has a store only if a
                later step needs it.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> prices = builder.table("prices", key=str, value=int, materialized="prices")
            >>> driver = TopologyTestDriver(builder.build())
            >>> topic = driver.create_input_topic("prices")
            >>> topic.pipe_key_value_list([("tea", 2), ("milk", 1), ("tea", 3), ("milk", None)])
            >>> list(driver.get_key_value_store("prices").all())
            [('tea', 3)]
        """
        stored = materialized_of(materialized)
        store = stored.name or self._graph.store_name(f"{topic}-")
        source = self._graph.suffixed("KSTREAM-SOURCE-", name, "-source")
        node = self._graph.name("KTABLE-SOURCE-", name)
        key_slot = slot_kept(slot_after("key", node, key), stored.key)
        value_slot = slot_kept(slot_after("value", node, value), stored.value)
        self._graph.add(
            SourceNode(
                name=source,
                topics=_checked_topics(topic, node),
                key=key_slot,
                value=value_slot,
                timestamp_extractor=timestamp_extractor,
                auto_offset_reset=checked_offset_reset(auto_offset_reset, node),
            )
        )
        operation = TableSource(lazy_store=store, store_name=stored.name)
        slots, sources = (key_slot, value_slot), frozenset({source})
        return add_table(self._graph, node, (source,), operation, slots, sources, stored, store)

    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        timestamp_extractor: TimestampExtractor | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]: ...
    def global_table(
        self,
        topic: str,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        materialized: Stored = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """Read a whole topic, from its beginning, as a table into every task.

        Args:
            topic: The topic.
            key: Type or serde of the keys; the application's default if left out.
            value: Type or serde of the values; the application's default if left out.
            timestamp_extractor: Returns the time of a record; the application's if left out.
            materialized: How to store the table.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> countries = builder.global_table("countries", key=str, value=str)
            >>> users = builder.stream("users", key=int, value=str)
            >>> named = users.join(countries, lambda code, name: name, on=lambda id, code: code)
            >>> named.foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("countries").pipe_input("at", "Austria")
            >>> driver.create_input_topic("users").pipe_input(1, "at")
            1 Austria
        """
        stored = materialized_of(materialized)
        if stored.history_retention_ms is not None:
            msg = f"The global table of topic {topic!r} cannot be versioned. Use `table`."
            raise TopologyError(msg)
        store = stored.name or self._graph.store_name(f"{topic}-")
        source = self._graph.suffixed("KSTREAM-SOURCE-", name, "-source")
        processor = self._graph.name("KTABLE-SOURCE-", name)
        key_slot = slot_kept(slot_after("key", source, key), stored.key)
        value_slot = slot_kept(slot_after("value", source, value), stored.value)
        self._graph.add_global_store(
            key_value_store(store, stored, key_slot, value_slot),
            GlobalStoreNode(
                name=source,
                topic=_checked_topics(topic, source)[0],
                processor=processor,
                operation=GlobalTableSource(lazy_store=store, store_name=store),
                store=store,
                key=key_slot,
                value=value_slot,
                timestamp_extractor=timestamp_extractor,
            ),
        )
        return GlobalKTable(store, self._graph, key_slot, value_slot, stored.name)

    def add_state_store(self, store: StoreBuilder[Any]) -> None:
        """Add a store; processors connect to it by its name.

        Example:
            >>> from headrace import Processor, Stores, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> builder.add_state_store(Stores.key_value("seen", str, int))
            >>> class First(Processor[str, int, str, int]):
            ...     def process(self, record):
            ...         seen = self.context.get_state_store("seen")
            ...         if seen.put_if_absent(record.key, 1) is None:
            ...             self.context.forward(record)
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> orders.process(First, stores=["seen"]).foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Graz", 3)])
            Graz 27
        """
        self._graph.add_store(store)

    def add_global_store(
        self,
        store: StoreBuilder[Any],
        topic: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> None:
        """Keep a store of a whole topic in every task; a processor maintains it.

        Args:
            store: The store.
            topic: The topic; every task reads it from its beginning.
            supplier: Returns a new processor, which puts the records into the store.
            key: Type or serde of the keys of the topic.
            value: Type or serde of the values of the topic.
            timestamp_extractor: Returns the time of a record; the application's if left out.
            name: Name of the step.

        Example:
            >>> from headrace import Processor, Stores, StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> names = Stores.key_value("names", int, str, logging=False)
            >>> class Keep(Processor[int, str, None, None]):
            ...     def process(self, record):
            ...         self.context.get_state_store(names).put(record.key, record.value.title())
            >>> builder.add_global_store(names, "users", Keep, key=int, value=str)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("users").pipe_input(1, "ada")
            >>> driver.get_state_store(names).get(1)
            'Ada'
        """
        check_builder(store)
        source = self._graph.suffixed("KSTREAM-SOURCE-", name, "-source")
        processor = self._graph.name("KTABLE-SOURCE-", name)
        checked_supplier(supplier, processor)
        self._graph.add_global_store(
            store,
            GlobalStoreNode(
                name=source,
                topic=_checked_topics(topic, source)[0],
                processor=processor,
                operation=UserProcessor(supplier),
                store=store.name,
                key=slot_after("key", source, key),
                value=slot_after("value", source, value),
                timestamp_extractor=timestamp_extractor,
            ),
        )

    def build(self, config: StreamsConfig | None = None) -> Topology:
        """Return the topology with the steps added so far.

        Args:
            config: Resolves serdes and applies optimisations now. If left out, `KafkaStreams` or
                `TopologyTestDriver` does this with its own settings.

        Raises:
            TopologyError: The program is wrong.

        Example:
            >>> from headrace import StreamsBuilder
            >>> builder = StreamsBuilder()
            >>> builder.stream("orders", key=str, value=int, name="read").to("copy", name="write")
            >>> print(builder.build().describe())
            Topologies:
               Sub-topology: 0
                Source: read (topics: [orders])
                  --> write
                Sink: write (topic: copy)
                  <-- read
        """
        topology = Topology.from_graph(self._graph.build())
        return topology if config is None else topology.built_with(topology_defaults(config))


def _checked_topics(topics: str | Iterable[str], node: str) -> tuple[str, ...]:
    listed = (topics,) if isinstance(topics, str) else tuple(topics)
    names = tuple(dict.fromkeys(checked_name(topic, what="topic") for topic in listed))
    if not names:
        msg = f"Source {node!r} was given no topic. Give it at least one."
        raise TopologyError(msg)
    return names
