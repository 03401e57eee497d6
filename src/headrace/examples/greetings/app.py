"""Greetings: every stateless operator, a custom serde, and all three error handlers."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder, StreamThreadExceptionResponse
from headrace.examples.greetings.model import Greeting, greeting_serde


def check(key: str | None, greeting: Greeting | None) -> None:
    """Refuse a record that the program cannot use; its dead letter says why."""
    if key is None or greeting is None:
        msg = "The record has no key." if key is None else "The record has no greeting."
        raise ValueError(msg)


def is_long(_key: str, greeting: Greeting) -> bool:
    """Return whether the message has more than five letters."""
    return len(greeting.message) > 5


def in_upper_case(greeting: Greeting) -> Greeting:
    """Return the greeting in capitals."""
    if greeting.message == "Transient Error":
        msg = "The greeting is a transient error."
        raise RuntimeError(msg)
    return Greeting(greeting.message.upper(), greeting.time_stamp)


def both_in_upper_case(key: str, greeting: Greeting) -> tuple[str, Greeting]:
    """Return key and greeting in capitals."""
    return key.upper(), in_upper_case(greeting)


def letters(key: str, greeting: Greeting) -> list[tuple[str, str]]:
    """Return a pair for each letter of the message."""
    return [(key.upper(), letter) for letter in greeting.message if letter.isalpha()]


def words(greeting: Greeting) -> list[str]:
    """Return the words of the message."""
    return greeting.message.split()


def stop(_error: Exception) -> StreamThreadExceptionResponse:
    """Stop this application, whatever the error is."""
    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT


builder = StreamsBuilder()
english = builder.stream("greetings", key=str, value=greeting_serde).peek(check)
spanish = builder.stream("greetings_spanish", key=str, value=greeting_serde).peek(check)

english_capitals = english.filter(is_long).map_values(in_upper_case, value=greeting_serde)
spanish_capitals = spanish.filter(is_long).map(both_in_upper_case, value=greeting_serde)
english_capitals.merge(spanish_capitals).to("greetings_uppercase")

english.filter_not(is_long).to("greetings_short")
spanish.flat_map(letters).to("greetings_letters")
english.flat_map_values(words).to("greetings_words")

app = KafkaStreams(
    builder.build(),
    application_id="greetings-app",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    production_exception_handler="continue",
    errors_dead_letter_queue_topic_name="greetings-dead",
)
app.set_uncaught_exception_handler(stop)

if __name__ == "__main__":
    raise SystemExit(app.run())
