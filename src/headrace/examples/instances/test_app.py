"""Three instances find each other, each answers for all keys, and two do when one has ended."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from headrace.brokers import open_log
from headrace.clients import TopicPartition
from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.instances.app import STORE, app
from headrace.examples.instances.dashboard import add_routes
from headrace.examples.instances.discovery import comes_true, described, knows
from headrace.examples.instances.feed import COUNTS, TOPICS, feed
from headrace.examples.instances.main import ask, free_addresses, write_input
from headrace.examples.serving import answering
from headrace.queries import QueryClient
from headrace.queries.local.instance_queries import InstanceQueries
from headrace.queries.service import QueryService


def discovery_of(service: QueryService) -> InstanceQueries:
    return InstanceQueries(service.catalog, service.instance)


def test_the_store_counts_the_events_of_each_key() -> None:
    with on_driver(app) as run:
        run.write(feed())

        assert dict(run.driver.get_key_value_store(STORE).all()) == COUNTS


def test_bad_input_is_counted_and_kept() -> None:
    assert fates_of(app, FeedRecord("events", "key-A", "seen", 1_540_000_000_000)) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.PROCESSED,  # any text is an event
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def test_the_input_is_written_once_however_often_the_story_is_run(tmp_path: Path) -> None:
    config = app.config.with_settings(state_dir=tmp_path)

    write_input(config)
    write_input(config)

    with closing(open_log(config)) as log:
        events = [TopicPartition("events", each) for each in range(TOPICS["events"])]
        assert sum(log.end_offsets(events).values()) == sum(COUNTS.values())
        assert {"event-counts", "events-dead"} < set(log.list_topics())


def test_the_instances_of_the_story_have_addresses_of_their_own() -> None:
    addresses = free_addresses(4)

    assert len(set(addresses)) == 4
    assert all(each.startswith("127.0.0.1:") for each in addresses)


def test_end_to_end_any_instance_answers_and_one_may_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())
        with answering(run.app, 3, add_routes, first_port=0) as services:
            known = [discovery_of(each) for each in services]
            assert all(knows(each, 3) for each in known)
            assert comes_true(
                lambda: len({each.query_metadata_for_key(STORE, "key-A") for each in known}) == 1
            )
            hosts = {each.url.removeprefix("http://") for each in services}
            partitions = [each.topic_partitions for each in known[0].all_metadata()]
            assert sorted(name for each in partitions for name in each) == [
                ("events", number) for number in range(6)
            ]
            lines = [*described(known[0], "key-A")]
            assert {line.split()[0] for line in lines[1:4]} == hosts
            ask([each.url for each in services])
            assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["4"] * 3

            services[1].close()
            for service in (services[0], services[2]):
                assert knows(discovery_of(service), 2)
                with QueryClient(service.url) as client:
                    assert dict(client.store(STORE).all()) == COUNTS
            url = services[0].url
            paths = re.findall(r'read\("(.+?)"\)', httpx.get(f"{url}/dashboard").text)
            shards, entries = [httpx.get(f"{url}{path}").json()["data"] for path in paths]
            assert [each["partition"] for each in shards] == [*range(6)]
            assert {each["key"]: each["value"] for each in entries} == COUNTS
