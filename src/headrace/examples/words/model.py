"""The words of one letter, as the aggregate of the slides keeps them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

ERRORS: dict[str, Any] = {
    "deserialization_exception_handler": "continue",
    "processing_exception_handler": "continue",
    "errors_dead_letter_queue_topic_name": "words-dead",
}
"""A record that fails is counted and becomes a dead letter, in every program of this example."""


class AlphabetWordAggregate(Struct, rename="camel"):
    """A letter, its words in the order of arrival, and how many came."""

    key: str = ""
    value_list: list[str] = []
    running_count: int = 0

    def update_new_events(self, key: str, word: str) -> AlphabetWordAggregate:
        """Return the aggregate with one more word; a word that it has is only counted."""
        words = self.value_list if word in self.value_list else [*self.value_list, word]
        return AlphabetWordAggregate(key, words, self.running_count + 1)


def check(key: str | None, word: str | None) -> None:
    """Refuse a record that no aggregation or join can use; its dead letter says why."""
    check_key(key, word)
    if word is None:
        msg = "The record has no word."
        raise ValueError(msg)


def check_key(key: str | None, _word: str | None) -> None:
    """Refuse a record without a key; one without a word deletes its row of a table."""
    if key is None:
        msg = "The record has no key."
        raise ValueError(msg)
