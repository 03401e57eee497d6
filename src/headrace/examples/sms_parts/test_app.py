"""Whole, doubled and incomplete messages, and what becomes of bad input."""

from __future__ import annotations

from pathlib import Path

from headrace import KafkaStreams
from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.sms_parts.app import app
from headrace.examples.sms_parts.feed import INCOMPLETE, MESSAGES, TOPICS, feed, parts_of
from headrace.examples.sms_parts.model import MessagePart
from headrace.examples.sms_parts.slide import topology

HELLO, WORLD = parts_of("1", ["hello ", "world"])


def test_two_parts_in_any_order_make_one_message() -> None:
    with on_driver(app) as run:
        run.write([WORLD, HELLO])

        assert [(each.key, each.value) for each in run.read("incoming-messages")] == [
            ("1", "hello world")
        ]


def test_a_part_that_comes_twice_still_gives_one_message_and_a_counted_duplicate() -> None:
    with on_driver(app) as run:
        run.write([HELLO, HELLO, WORLD, WORLD])

        assert [each.value for each in run.read("incoming-messages")] == ["hello world"]
        assert run.dropped() == {"processing": 2}
        assert [
            letter.headers.last("__streams.errors.message")
            for letter in run.read("incoming-msg-parts-dead")
        ] == [b"Part 1 of 2 is a duplicate.", b"Part 2 of 2 is a duplicate."]


def test_the_rule_of_the_slide_fails_for_a_part_that_comes_twice() -> None:
    with on_driver(KafkaStreams(topology(), app.config)) as run:
        run.write([HELLO, HELLO, WORLD])

        found = [each.value and each.value.parts for each in run.read("incoming-messages")]
        assert found == [["hello ", "hello "], None]


def test_a_message_that_never_becomes_whole_is_forgotten_after_an_hour() -> None:
    with on_driver(app) as run:
        run.write([HELLO, *parts_of("2", ["whole"])])
        store = run.driver.get_key_value_store("messages")

        run.driver.advance_wall_clock_time("59m")
        assert {key for key, _ in store.all()} == {"1", "2"}
        run.driver.advance_wall_clock_time("1m")

        assert list(store.all()) == []
        assert [(each.key, each.value.parts) for each in run.read("incomplete-messages")] == [
            ("1", {1: "hello "})
        ]


def test_bad_input_is_counted_and_kept() -> None:
    [whole], [other] = parts_of("3", ["whole"]), parts_of("4", ["other"])
    fates = fates_of(
        app,
        whole,
        again=other,
        late=whole._replace(key="5", timestamp=0),
        future=whole._replace(key="6", timestamp=10**13),
        number=HELLO._replace(value=MessagePart(3, 2, "?")),
        length=HELLO._replace(key="3", value=MessagePart(2, 2, "?")),
    )

    assert fates == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.DEAD_LETTER,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
        "number": Fate.DEAD_LETTER,
        "length": Fate.DEAD_LETTER,
    }


def test_end_to_end_every_message_is_there_once(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        found = sorted(each.key for each in run.read("incoming-messages"))
        expected = {f"msg-{number}" for number in range(1, MESSAGES + 1)} - INCOMPLETE
        assert found == sorted(expected)
        assert len(run.read("incoming-msg-parts-dead")) == 5
