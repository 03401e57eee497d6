"""Checks during a run find each anomaly, planted into an embedded log between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.checks import Verdict
from chaos.contract import Log
from chaos.judging import Watcher
from chaos.reading import EmbeddedReader
from chaos.watching import Watch
from chaos.workloads import WORKLOADS
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.config import StreamsConfig
from tests.waiting import await_that

WORKLOAD = WORKLOADS["running_aggregate"]
CHANGELOG = "watched-running-store-changelog"
WRITTEN = ("running-echo", "running-totals", CHANGELOG)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TopicLog]:
    config = StreamsConfig(application_id="watched", embedded_path=tmp_path / "topics.db")
    with closing(open_log(config)) as log:
        for topic in ("running-events", *WRITTEN):
            log.create_topic(topic, partitions=3)
        log.create_topic("watched-markers")
        yield log


@pytest.fixture
def watch(log: TopicLog, tmp_path: Path) -> Iterator[Watch]:
    with closing(Watch(WORKLOAD, "embedded", str(tmp_path / "topics.db"), "watched")) as watch:
        watch.look()
        yield watch


def write(log: TopicLog, identity: str, *topics: str, batch: int) -> None:
    headers = [("batch", f"0_0/{batch}".encode())]
    value = f'{{"id": "{identity}", "amount": 1}}'.encode()
    log.append([(topic, 0, 1, b"k", value, headers) for topic in topics])


def commit(log: TopicLog, group: str, topic: str, offset: int) -> None:
    log.commit_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(offset)})


def found(watch: Watch) -> dict[str, int]:
    watch.look()
    return {kind: count for kind, count in watch.found.counts().items() if count}


def test_whole_batches_are_right(log: TopicLog, watch: Watch) -> None:
    for number in range(3):
        log.append([("running-events", 0, 1, b"k", f'{{"id": "{number}"}}'.encode(), None)])
        write(log, str(number), *WRITTEN, batch=number)
        commit(log, "watched", "running-events", number + 1)

        assert found(watch) == {}
    assert watch.found == Verdict()


def test_a_batch_that_grows_is_torn(log: TopicLog, watch: Watch) -> None:
    write(log, "a", *WRITTEN, batch=1)
    assert found(watch) == {}
    write(log, "b", *WRITTEN, batch=1)

    assert found(watch) == {"torn": 2}


def test_a_record_that_only_one_of_two_topics_has_is_torn(log: TopicLog, watch: Watch) -> None:
    write(log, "a", "running-echo", batch=1)

    assert found(watch) == {"torn": 1}


@pytest.mark.parametrize("topics", [WRITTEN[:2], (CHANGELOG,)])
def test_a_change_that_shows_without_its_changelog_or_is_there_alone_is_torn(
    log: TopicLog, watch: Watch, topics: tuple[str, ...]
) -> None:
    write(log, "a", *topics, batch=1)

    assert found(watch) == {"torn": 1}


def test_an_offset_that_is_committed_before_its_record_shows_is_ahead(
    log: TopicLog, watch: Watch
) -> None:
    log.append([("running-events", 0, 1, b"k", b'{"id": "a"}', None)])
    assert found(watch) == {}
    commit(log, "watched", "running-events", 1)

    assert found(watch) == {"offsets_ahead": 1}


@pytest.mark.parametrize(
    ("group", "topic"), [("watched", "running-events"), ("watched-markers", "watched-markers")]
)
def test_an_offset_that_goes_back_is_seen(
    log: TopicLog, watch: Watch, group: str, topic: str
) -> None:
    commit(log, group, topic, 2)
    assert found(watch) == {}
    commit(log, group, topic, 1)

    assert found(watch) == {"went_back": 1}


class _Reader(EmbeddedReader):
    """A reader whose broker is away when it says so."""

    is_away = False

    def read(self, topics: Iterable[str], starts: Mapping[tuple[str, int], int]) -> Log:
        if _Reader.is_away:
            msg = "No broker."
            raise ConnectionError(msg)
        return super().read(topics, starts)


def test_an_offset_that_goes_back_during_an_outage_is_found_afterwards(
    log: TopicLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.watching.open_reader", lambda _kind, address: _Reader(address))
    monkeypatch.setattr("chaos.judging._LOOK_SECONDS", 0.01)
    monkeypatch.setattr(_Reader, "is_away", False)
    site = SimpleNamespace(kind="embedded", address=str(tmp_path / "topics.db"))
    watcher = Watcher(WORKLOAD, cast(Any, site), "watched")
    commit(log, "watched", "running-events", 2)
    write(log, "a", *WRITTEN, batch=1)
    watcher.start()
    await_that(lambda: watcher.looks > 0, "a first look", found=lambda: watcher.error)

    monkeypatch.setattr(_Reader, "is_away", True)
    await_that(lambda: watcher.error is not None, "a look that fails")
    commit(log, "watched", "running-events", 1)
    write(log, "b", *WRITTEN, batch=1)
    seen = watcher.looks
    monkeypatch.setattr(_Reader, "is_away", False)
    await_that(lambda: watcher.looks > seen, "another look", found=lambda: watcher.error)

    counts = watcher.stop().counts()
    assert {kind: count for kind, count in counts.items() if count} == {"went_back": 1, "torn": 2}
