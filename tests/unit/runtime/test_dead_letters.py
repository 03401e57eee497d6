"""Dead letters and changelog records that the broker refuses, and how often a batch is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headrace import ErrorHandlerContext, ProductionError
from headrace.brokers.sessions import Broker
from headrace.processors.handlers import dead_letter
from headrace.records import NO_HEADERS, Headers
from headrace.runtime.exchange.packing import TaskOutput
from tests.unit.runtime.writing import LARGE, LIMIT, Writing, dead_letters_of, outputs


class CountedTransactions:
    """A log that counts its transactions."""

    def __init__(self, log: Broker) -> None:
        self._log = log
        self.opened = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def transaction(self, *given: Any, **named: Any) -> Any:
        self.opened += 1
        return self._log.transaction(*given, **named)


@pytest.mark.parametrize("dead_letter_topic", ["letters", "small"])
def test_one_more_transaction_leaves_all_refused_records_out(
    tmp_path: Path, dead_letter_topic: str
) -> None:
    writing = Writing(
        tmp_path,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name=dead_letter_topic,
    )
    log = CountedTransactions(writing.log)
    writing.log = cast(Broker, log)

    note = writing.write(outputs(0, *[LARGE, b"a"] * 100, topic="small"))

    assert log.opened == 2
    assert note.refused == {"small": 100}
    assert writing.values("small").count(b"a") == 100
    assert note.written in ({"small": 100, "letters": 100}, {"small": 200})


def dead_letter_of(size: int) -> TaskOutput:
    """Return a dead letter among the outputs of a task, as a handler of the engine writes it."""
    source = ErrorHandlerContext("in", 0, 7, NO_HEADERS, 1, "step", "0_0", b"k", b"x" * size)
    written = dead_letter("letters", source, ValueError("because " + "y" * size))
    return outputs(0, written.value or b"", topic="letters", headers=written.headers)


@pytest.mark.parametrize(("limit", "keeps_stack"), [(1_300, False), (9_000, True)])
def test_a_dead_letter_that_is_too_large_is_shortened(
    tmp_path: Path, limit: int, keeps_stack: bool
) -> None:
    writing = Writing(tmp_path, errors_dead_letter_queue_topic_name="letters")
    writing.log.delete_topic("letters")
    writing.log.create_topic("letters", settings={"max.message.bytes": str(limit)})

    note = writing.write(dead_letter_of(4_000), outputs(1, b"a"))

    [dead_letter] = dead_letters_of(writing)
    assert (dead_letter["key"], dead_letter["value"]) == (None, None)
    assert dead_letter["__streams.errors.topic"] == b"in"
    assert dead_letter["__streams.errors.offset"] == b"7"
    assert dead_letter["__streams.errors.message"].startswith(b"because y")
    assert ("__streams.errors.stacktrace" in dead_letter) is keeps_stack
    assert note.written == {"letters": 1, "out": 1}


def test_a_topic_that_takes_no_dead_letter_at_all_stops_the_application(tmp_path: Path) -> None:
    writing = Writing(tmp_path, errors_dead_letter_queue_topic_name="letters")
    writing.log.delete_topic("letters")
    writing.log.create_topic("letters", settings={"max.message.bytes": "100"})

    with pytest.raises(ProductionError, match="A dead letter for topic 'letters', partition 0"):
        writing.write(dead_letter_of(4_000))


def test_a_dead_letter_that_a_sink_writes_is_a_record_like_others(tmp_path: Path) -> None:
    continuing = Writing(tmp_path, production_exception_handler="continue")
    headers = Headers([("__streams.errors.offset", b"7")])

    note = continuing.write(outputs(0, LARGE, b"a", topic="small", headers=headers))

    assert note.refused == {"small": 1}
    assert continuing.values("small") == [b"a"]


def test_a_changelog_record_is_never_left_out(tmp_path: Path) -> None:
    writing = Writing(tmp_path, production_exception_handler="continue", counts_records=True)
    changelog = "app-counts-changelog"
    writing.log.delete_topic(changelog)
    writing.log.create_topic(changelog, settings={"max.message.bytes": str(LIMIT)})

    with pytest.raises(ProductionError) as caught:
        writing.write(outputs(0, b"a", LARGE, topic=changelog))

    assert str(caught.value) == (
        f"Store 'counts' of task 0_0 could not write key b'key' ({2 * LIMIT + 3} bytes with its "
        "value) to its changelog topic 'app-counts-changelog', partition 0: it is too large "
        f"({2 * LIMIT + 3} bytes, and `max.message.bytes` is {LIMIT}). Raise the "
        "`max.message.bytes` of that topic, or store smaller values."
    )
    assert writing.values(changelog) == []
