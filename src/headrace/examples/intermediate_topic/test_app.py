"""Four tasks share the slow step, and what becomes of bad input."""

from __future__ import annotations

from pathlib import Path

from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.intermediate_topic.app import app
from headrace.examples.intermediate_topic.feed import START, TOPICS, feed
from headrace.examples.intermediate_topic.model import View

GOOD = FeedRecord("logs", None, View("browser-1", 7), START)


def test_a_view_passes_through_the_topic_and_gets_its_name() -> None:
    with on_driver(app) as run:
        run.write([GOOD])

        [named] = run.read("named-views")
        assert (named.key, named.value.product_name) == ("browser-1", "product 7")
        assert [each.value for each in run.read("my-topic")] == [View("browser-1", 7)]


def test_the_slow_step_is_a_subtopology_of_its_own() -> None:
    described = app.topology.describe()

    assert [
        sorted(node.name.split("-")[1] for node in each.nodes) for each in described.subtopologies
    ] == [
        ["KEY", "SINK", "SOURCE"],
        ["PROCESSVALUES", "SINK", "SOURCE"],
    ]


def test_bad_input_is_counted_and_kept() -> None:
    unknown = GOOD._replace(value=View("browser-1", 99))

    assert fates_of(app, GOOD) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.PROCESSED,  # the key is taken from the value
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }
    with on_driver(app) as run:
        run.write([unknown])
        [letter] = run.read("intermediate-topic-dead")
        assert letter.headers.last("__streams.errors.message") == b"There is no product 99."
        assert letter.headers.last("__streams.errors.topic") == b"my-topic"
        assert run.dropped() == {"processing": 1}


def test_end_to_end_four_tasks_share_the_slow_step_of_one_partition(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        named = run.read("named-views")
        assert len(named) == 99
        assert {each.value.task for each in named} == {"1_0", "1_1", "1_2", "1_3"}
        assert len(run.read("intermediate-topic-dead")) == 1
