"""The results of each operator, and bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import ProcessingError
from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.greetings.app import app
from headrace.examples.greetings.feed import BAD, START, START_MS, TOPICS, feed
from headrace.examples.greetings.model import Greeting, greeting_serde
from headrace.testing import TopologyTestDriver

GOOD_MORNING = b'{"message":"Good Morning","timeStamp":"2022-12-04T05:26:31.060293"}'


def english(key: str | None, message: str) -> FeedRecord:
    return FeedRecord("greetings", key, Greeting(message, START), START_MS)


def spanish(key: str | None, message: str) -> FeedRecord:
    return english(key, message)._replace(topic="greetings_spanish")


def test_long_greetings_are_written_in_capitals_with_the_documents_payload() -> None:
    with on_driver(app) as run:
        run.write([english("GM", "Good Morning"), english("HI", "Hello")])

        topic = run.driver.create_output_topic("greetings_uppercase", key=bytes, value=bytes)
        capitals = GOOD_MORNING.replace(b"Good Morning", b"GOOD MORNING")
        assert topic.read_key_values_to_list() == [(b"GM", capitals)]


def test_filter_not_keeps_the_greetings_of_up_to_five_letters() -> None:
    with on_driver(app) as run:
        run.write([english("GM", "Good Morning"), english("HI", "Hello"), english("HI", "Hi")])

        assert [each.value.message for each in run.read("greetings_short")] == ["Hello", "Hi"]


def test_map_changes_the_key_and_merge_adds_the_spanish_greetings() -> None:
    with on_driver(app) as run:
        run.write([english("gm", "Good Morning"), spanish("bd", "Buenos Dias")])

        merged = [(each.key, each.value.message) for each in run.read("greetings_uppercase")]
        assert merged == [("gm", "GOOD MORNING"), ("BD", "BUENOS DIAS")]


def test_flat_map_gives_letters_and_flat_map_values_words() -> None:
    with on_driver(app) as run:
        run.write([english("gm", "Good Morning"), spanish("h", "Hola")])

        words = [(each.key, each.value) for each in run.read("greetings_words")]
        letters = [(each.key, each.value) for each in run.read("greetings_letters")]
        assert words == [("gm", "Good"), ("gm", "Morning")]
        assert letters == [("H", "H"), ("H", "o"), ("H", "l"), ("H", "a")]


@pytest.mark.parametrize("digits", ["060293", "060000", "000000"])
def test_the_serde_keeps_all_six_digits(digits: str) -> None:
    data = GOOD_MORNING.replace(b"060293", digits.encode())

    assert greeting_serde.serialize(greeting_serde.deserialize(data)) == data


@pytest.mark.parametrize(
    ("value", "reason", "says"),
    [
        (BAD[10], "deserialization", b"Input data was truncated"),
        (BAD[20], "processing", b"The greeting is a transient error."),
        (BAD[30], "serialization", b"control characters"),
    ],
)
def test_each_row_of_the_error_table_has_a_bad_record(
    value: bytes, reason: str, says: bytes
) -> None:
    with on_driver(app) as run:
        run.write([FeedRecord("greetings", "BAD", value, START_MS)])

        [letter] = run.read("greetings-dead")
        assert (letter.key, letter.value) == (b"BAD", value)
        assert says in (letter.headers.last("__streams.errors.message") or b"")
        assert run.dropped() == {reason: 1}


def test_without_a_handler_an_application_error_stops_the_application() -> None:
    config = app.config.with_settings(processing_exception_handler="fail")

    with TopologyTestDriver(app.topology, config) as driver:
        topic = driver.create_input_topic("greetings", key=str, value=bytes)
        with pytest.raises(ProcessingError, match="The greeting is a transient error"):
            topic.pipe_input("BAD", BAD[20])


@pytest.mark.parametrize(
    "good",
    [english("GM", "Good Morning"), spanish("BD", "Buenos Dias")],
    ids=["english", "spanish"],
)
def test_bad_input_is_counted_and_kept(good: FeedRecord) -> None:
    assert fates_of(app, good) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


def test_end_to_end_every_good_greeting_is_there_and_three_are_dead(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        long = [
            each.value.message
            for each in feed()
            if isinstance(each.value, Greeting) and len(each.value.message) > 5
        ]
        capitals = [each.value.message for each in run.read("greetings_uppercase")]
        assert sorted(capitals) == sorted(message.upper() for message in long)
        assert sorted(each.value for each in run.read("greetings-dead")) == sorted(BAD.values())
