"""Prints which instances an instance knows, with the calls of the document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headrace.examples.instances.app import STORE
from headrace.examples.instances.feed import TOPICS
from headrace.queries import HostInfo, KeyQueryMetadata, StreamsMetadata

SECONDS = 120
"""How long to wait for the instances, on a busy machine."""


class Discovering(Protocol):
    """The part of `KafkaStreams` that finds instances."""

    def all_metadata(self) -> list[StreamsMetadata]: ...
    def metadata_for_store(self, name: str, /) -> list[StreamsMetadata]: ...
    def query_metadata_for_key(self, store: str, key: Any, /) -> KeyQueryMetadata: ...


def address(host: HostInfo) -> str:
    return f"{host.host}:{host.port}"


def described(streams: Discovering, key: str) -> Iterator[str]:
    """Yield lines: all instances, those of the store, and those of a key."""
    yield "all_metadata():"
    for each in streams.all_metadata():
        stores = ", ".join(sorted(each.state_store_names)) or "no store"
        partitions = sorted(f"{topic}-{number}" for topic, number in each.topic_partitions)
        yield f"  {address(each.host_info)}  {stores}  {' '.join(partitions)}"
    hosts = [address(each.host_info) for each in streams.metadata_for_store(STORE)]
    yield f"metadata_for_store({STORE!r}): {', '.join(hosts)}"
    found = streams.query_metadata_for_key(STORE, key)
    standbys = ", ".join(sorted(map(address, found.standby_hosts))) or "none"
    yield (
        f"query_metadata_for_key({STORE!r}, {key!r}): partition {found.partition}, "
        f"active {address(found.active_host)}, standbys {standbys}"
    )


def knows(streams: Discovering, count: int) -> bool:
    """Return whether that many instances share all partitions before the time is over."""

    def is_shared() -> bool:
        found = streams.metadata_for_store(STORE)
        partitions = sum(len(each.topic_partitions) for each in found)
        return (len(found), partitions) == (count, TOPICS["events"])

    return comes_true(is_shared)


def comes_true(condition: Callable[[], bool]) -> bool:
    """Return whether a condition holds before the time is over."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
