"""The figures of the document, and the fate of bad input."""

from __future__ import annotations

from pathlib import Path

import httpx

from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.serving import answering
from headrace.examples.user_views.app import app
from headrace.examples.user_views.feed import TOPICS, VIEWS, feed
from headrace.examples.user_views.model import View
from headrace.queries import QueryClient

GOOD = FeedRecord("views", None, View("alice", "/"), 1_700_000_000_000)


def test_the_table_is_that_of_the_document() -> None:
    with on_driver(app) as run:
        run.write(feed())

        views = run.driver.get_key_value_store("user-views")
        assert dict(views.all()) == {"alice": 10, "bob": 2, "carol": 6}


def test_bad_input_is_counted_and_kept() -> None:
    assert fates_of(app, GOOD) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.PROCESSED,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def test_end_to_end_the_last_counts_are_those_of_the_document(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        counts = {record.key: record.value for record in run.read("user-view-counts")}
        assert counts == {"alice": 10, "bob": 2, "carol": 6}


def test_end_to_end_each_instance_answers_for_every_user(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        with answering(run.app, 2, first_port=0) as instances:
            for instance in instances:
                keys = f"{instance.url}/v1/stores/user-views/keys"
                answers = [httpx.get(f"{keys}/{user}", timeout=60) for user in VIEWS]
                assert [each.text for each in answers] == ["10", "2", "6"]
                with QueryClient(instance.url) as client:
                    views = client.store("user-views")
                    assert dict(views.all()) == {"alice": 10, "bob": 2, "carol": 6}
                    assert [views.get(user) for user in ("alice", "bob", "nobody")] == [10, 2, None]
