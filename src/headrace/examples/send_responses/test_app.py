"""The tables of the slides, and what becomes of bad input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.send_responses.app import app
from headrace.examples.send_responses.feed import TOPICS, feed, message, response, slides
from headrace.examples.send_responses.model import MessageStatus


def test_1111_and_2222_are_sent_but_not_3333_and_4444() -> None:
    with on_driver(app) as run:
        run.write(slides())

        sent = [(each.key, each.value.status) for each in run.read("mt-messages")]
        assert sent == [("1111", MessageStatus.SENT), ("2222", MessageStatus.SENT)]


def test_the_payload_is_the_message_with_its_new_status() -> None:
    with on_driver(app) as run:
        run.write([message("2222", 1), response("2222", 1, 2)])

        topic = run.driver.create_output_topic("mt-messages", key=bytes, value=bytes)
        assert topic.read_key_value() == (
            b"2222",
            b'{"text":"message 2222","totalPartsCount":1,"status":"SENT"}',
        )


def test_a_response_may_come_before_its_message() -> None:
    with on_driver(app) as run:
        run.write([response("2222", 1, 1), message("2222", 1)])

        assert [each.key for each in run.read("mt-messages")] == ["2222"]


def test_a_message_that_was_deleted_is_not_sent() -> None:
    with on_driver(app) as run:
        run.write([message("1111", 1), message("1111", 1)._replace(value=None)])
        run.write([response("1111", 1, 1)])

        assert run.read("mt-messages") == []


def test_bad_responses_are_counted_and_kept() -> None:
    fates = fates_of(
        app,
        response("1111", 1, 2),
        before=[message("1111", 2)],
        again=response("1111", 2, 2),
        late=response("3333", 1, 1, time=0),
        future=response("4444", 1, 1, time=10**13),
    )

    assert fates == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.DEAD_LETTER,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def test_bad_messages_are_counted_and_kept() -> None:
    assert fates_of(app, message("1111", 2)) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.PROCESSED,  # it deletes the message
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def test_end_to_end_every_message_with_all_responses_is_sent(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        parts = {
            each.key: each.value.total_parts_count for each in feed() if "msg" not in each.topic
        }
        answers = Counter(each.key for each in feed() if "msg" in each.topic)
        sent = {each.key for each in run.read("mt-messages")}
        assert sent == {key for key, count in parts.items() if answers[key] >= count}
