"""Metadata: which instance has which stores and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.brokers.log import TopicPartition
from headrace.queries.catalog import Catalog
from headrace.queries.copy.layout import GLOBAL_GROUP, Shard
from headrace.queries.local.local_partitions import LocalInstance
from headrace.runtime.snapshots import SnapshotRecord


class HostInfo(NamedTuple):
    """The address at which an instance answers: its ``application.server``."""

    host: str
    port: int

    @staticmethod
    def unavailable() -> HostInfo:
        """Return the address of an instance that is not known, or that has no server."""
        return HostInfo("unavailable", -1)

    @staticmethod
    def of_name(name: str) -> HostInfo:
        """Return the address in the name of an instance, ``host:port``."""
        host, _, port = name.rpartition(":")
        if not host or not port.isdecimal():
            return HostInfo.unavailable()
        return HostInfo(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(frozen=True)
class StreamsMetadata:
    """One instance of an application."""

    host_info: HostInfo
    state_store_names: frozenset[str]
    """The stores of which it is the first to ask for some partition."""
    topic_partitions: frozenset[TopicPartition]
    """The input partitions of these."""
    standby_state_store_names: frozenset[str]
    """The stores of which it keeps a standby of some partition."""
    standby_topic_partitions: frozenset[TopicPartition]

    @property
    def host(self) -> str:
        """The host of the instance."""
        return self.host_info.host

    @property
    def port(self) -> int:
        """The port of the instance."""
        return self.host_info.port


@dataclass(frozen=True)
class KeyQueryMetadata:
    """The instances that have a key."""

    active_host: HostInfo
    """The instance to ask first."""
    standby_hosts: frozenset[HostInfo]
    partition: int
    """The partition of the key; -1: of a global store, or not known."""

    @staticmethod
    def not_available() -> KeyQueryMetadata:
        """Return the metadata of a key while its instances are not known."""
        return KeyQueryMetadata(HostInfo.unavailable(), frozenset(), -1)


def metadata_of(catalog: Catalog, instance: LocalInstance) -> list[StreamsMetadata]:
    """Return all known instances, in the order of their names."""
    record, placement = instance.newest_record(), instance.placement()
    found = []
    for name in sorted(instance.members()):
        active = {shard for shard, names in placement.items() if names[:1] == (name,)}
        standby = {shard for shard, names in placement.items() if name in names[1:]}
        of_globals = {shard for shard in standby if shard.group == GLOBAL_GROUP}
        active, standby = active | of_globals, standby - of_globals
        found.append(
            StreamsMetadata(
                HostInfo.of_name(name),
                _store_names(catalog, active),
                _topic_partitions(catalog, active, record),
                _store_names(catalog, standby),
                _topic_partitions(catalog, standby, record),
            )
        )
    return found


def _store_names(catalog: Catalog, shards: set[Shard]) -> frozenset[str]:
    groups = {shard.group for shard in shards}
    return frozenset(store.name for store in catalog.stores.values() if store.group in groups)


def _topic_partitions(
    catalog: Catalog, shards: set[Shard], record: SnapshotRecord | None
) -> frozenset[TopicPartition]:
    counts = {} if record is None else {topic: len(each) for topic, each in record.position.items()}
    return frozenset(
        TopicPartition(topic, shard.partition)
        for store in catalog.stores.values()
        for topic in store.topics
        for shard in shards
        if shard.group == store.group and shard.partition < counts.get(topic, 0)
    )
