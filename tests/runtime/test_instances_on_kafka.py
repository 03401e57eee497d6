"""Instances find each other through a consumer group of a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import Materialized, StreamsBuilder, StreamsConfig
from headrace.brokers import open_log
from headrace.queries.catalog import Catalog, catalog_of
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.instance import Instance
from headrace.queries.members import MemberStatus
from tests.kafka_broker import RunningBroker
from tests.runtime.in_process import InProcessQuery
from tests.unique_names import unique
from tests.waiting import await_that

FIRST, SECOND = "localhost:1", "localhost:2"


class Peers:
    """The instances of this process, which answer each other."""

    def __init__(self, catalog: Catalog, config: StreamsConfig) -> None:
        self._catalog, self._config = catalog, config
        self.by_name: dict[str, Instance] = {}
        self.started: list[Instance] = []
        self.sent: list[tuple[str, Shard]] = []

    def start(self, name: str) -> Instance:
        instance = Instance(
            self._catalog,
            self._config,
            name=name,
            database=MemoryDatabase(),
            transport=self,
            source=self,
        )
        self.started.append(instance)
        self.by_name.setdefault(name, instance)
        instance.start()
        return instance

    async def status(self, member: str, /) -> MemberStatus:
        return self.by_name[member].status()

    @contextmanager
    def shard(self, member: str, shard: Shard, /) -> Iterator[Iterator[bytes]]:
        chunks = self.by_name[member].export_shard(shard)
        self.sent.append((member, shard))
        yield chunks


@pytest.fixture
def peers(kafka: RunningBroker, tmp_path: Path) -> Iterator[Peers]:
    """The instances of an application with a snapshot of two partitions."""
    name = unique("instances")
    builder = StreamsBuilder()
    lines = builder.stream(f"{name}.in", key=str, value=str).group_by_key()
    lines.count(materialized=Materialized("counts"))
    log = open_log(StreamsConfig(application_id=name, bootstrap_servers=kafka.address))
    log.create_topic(f"{name}.in", partitions=2)
    log.append([(f"{name}.in", partition, 1, b"a", b"", None) for partition in range(2)])
    query = InProcessQuery(
        builder.build(), tmp_path, application_id=name, bootstrap_servers=kafka.address
    )
    query.run()
    found = Peers(catalog_of(query.plan), query.config)
    yield found
    for instance in found.started:
        instance.close()
    query.log.close()
    log.close()


def test_instances_share_shards_refuse_a_taken_name_and_leave(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.queries.membership._TAKEN_SECONDS", 0.5)
    shards = [Shard("0", 0), Shard("0", 1)]
    first = peers.start(FIRST)
    await_that(first.is_ready, "the first instance", found=first.status)

    second = peers.start(SECOND)
    await_that(second.is_ready, "the second instance", found=second.status)
    assert sorted(peers.sent) == [(FIRST, shard) for shard in shards]
    await_that(
        lambda: {*first.members()} == {*second.members()} == {FIRST, SECOND},
        "both instances to know each other",
        found=lambda: (first.members(), second.members()),
    )
    await_that(
        lambda: (
            first.placement() == second.placement()
            and all({*names} == {FIRST, SECOND} for names in first.placement().values())
        ),
        "the same placement",
        found=lambda: (first.placement(), second.placement()),
    )

    taken = peers.start(FIRST)
    await_that(lambda: taken.failure() is not None, "the taken name to be refused")
    assert "own `application.server`" in str(taken.failure())
    assert not taken.is_ready()
    taken.close()
    assert first.is_ready()

    second.close()
    await_that(
        lambda: first.placement() == dict.fromkeys(shards, (FIRST,)),
        "the second instance to be gone",
        found=first.placement,
    )
