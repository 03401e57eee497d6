"""The figures of the slides, all ten joins, and what becomes of bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import KafkaStreams, Topology, TopologyError
from headrace.examples.checking import Fate, fates_of, in_process
from headrace.examples.feeding import FeedRecord
from headrace.examples.words.app import app
from headrace.examples.words.feed import SLIDES as WORDS
from headrace.examples.words.feed import START, TOPICS, feed
from headrace.examples.words.joins import (
    Alphabet,
    stream_global_table,
    stream_global_table_app,
    stream_stream,
    stream_stream_app,
    stream_table,
    stream_table_app,
    table_table,
    table_table_app,
)
from headrace.examples.words.model import AlphabetWordAggregate
from headrace.examples.words.tables import words_global_table, words_table
from headrace.testing import DriverFactory, TopologyTestDriver


def printed(driver: TopologyTestDriver, topic: str) -> str:
    pairs = driver.create_output_topic(topic).read_key_values_to_list()
    return " ".join(f"[{key}:{value}]" for key, value in pairs)


def test_count_prints_what_the_slide_prints(topology_driver: DriverFactory) -> None:
    driver = topology_driver(app.topology, app.config)

    driver.create_input_topic("words").pipe_key_value_list(WORDS[:3])

    assert printed(driver, "words-count") == "[A:1] [A:2] [B:1]"


def test_the_count_has_the_name_of_the_slide() -> None:
    assert "Processor: count-per-alphabet " in str(app.topology.describe())


def test_reduce_prints_what_the_slide_prints_with_commits_after_3_and_5_records(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(app.topology, app.config, commit_each_record=False)
    words = driver.create_input_topic("words")

    words.pipe_key_value_list(WORDS[:3])
    driver.commit()
    assert printed(driver, "words-reduced") == "[A:Apple-Alpha] [B:Bus]"

    words.pipe_key_value_list(WORDS[3:])
    driver.commit()
    assert printed(driver, "words-reduced") == "[A:Apple-Alpha-Ant] [B:Bus-Baby]"


def test_aggregate_keeps_the_words_of_a_letter(topology_driver: DriverFactory) -> None:
    driver = topology_driver(app.topology, app.config)

    driver.create_input_topic("words").pipe_key_value_list([*WORDS, ("A", "Ant")])

    store = driver.get_key_value_store("aggregated-words")
    assert store.get("A") == AlphabetWordAggregate("A", ["Apple", "Alpha", "Ant"], 4)
    assert store.get("B") == AlphabetWordAggregate("B", ["Bus", "Baby"], 2)


@pytest.mark.parametrize(
    ("cache", "updates"),
    [(10_485_760, "[A:3] [B:2]"), (0, "[A:1] [A:2] [B:1] [A:3] [B:2]")],
    ids=["cache of 10 MB", "no cache"],
)
def test_a_cache_holds_updates_back_until_the_commit(
    topology_driver: DriverFactory, cache: int, updates: str
) -> None:
    driver = topology_driver(
        app.topology, app.config, commit_each_record=False, statestore_cache_max_bytes=cache
    )

    driver.create_input_topic("words").pipe_key_value_list(WORDS)
    driver.commit()

    assert printed(driver, "words-count") == updates


def test_a_full_cache_emits_before_the_commit(topology_driver: DriverFactory) -> None:
    driver = topology_driver(
        app.topology, app.config, commit_each_record=False, statestore_cache_max_bytes=300
    )

    driver.create_input_topic("words").pipe_key_value_list([(c, c) for c in "ABCDEFGH"])

    assert printed(driver, "words-count").startswith("[A:1] [B:1]")


def test_a_table_keeps_the_last_word_of_a_letter(topology_driver: DriverFactory) -> None:
    driver = topology_driver(words_table().topology)

    driver.create_input_topic("words").pipe_key_value_list([*WORDS, ("B", None), (None, "Cat")])

    assert dict(driver.get_key_value_store("words-store").all()) == {"A": "Ant"}


def test_a_global_table_is_there_for_every_task(topology_driver: DriverFactory) -> None:
    driver = topology_driver(words_global_table().topology, partitions=4)

    driver.create_input_topic("words").pipe_key_value_list(WORDS)
    driver.create_input_topic("letters").pipe_key_value_list(
        [(number, letter) for number in range(4) for letter in "AB"]
    )

    spelled = driver.create_output_topic("letters-spelled").read_values_to_list()
    assert sorted(spelled) == ["A as in Ant"] * 4 + ["B as in Baby"] * 4


LETTERS = [("A", "A is the first letter."), ("B", "B is the second letter.")]
ABBREVIATIONS = [("A", "Apple"), ("B", "Bus"), ("C", "Cat")]
BOTH = [
    ("A", Alphabet("Apple", "A is the first letter.")),
    ("B", Alphabet("Bus", "B is the second letter.")),
]
RIGHT_MISSING = ("C", Alphabet("Cat", None))
LEFT_MISSING = ("A", Alphabet(None, "A is the first letter."))


def joins(topology: Topology, topology_driver: DriverFactory) -> dict[str, list[Any]]:
    driver = topology_driver(topology)
    driver.create_input_topic("alphabets").pipe_key_value_list(LETTERS)
    abbreviations = driver.create_input_topic("alphabets_abbreviations")
    abbreviations.pipe_key_value_list(ABBREVIATIONS)
    abbreviations.pipe_input("Z", "Zoo", timestamp=60_000)  # closes the join windows
    outputs = sorted(driver.produced_topic_names())
    return {
        topic.removeprefix("test-application-"): driver.create_output_topic(
            topic
        ).read_key_values_to_list()
        for topic in outputs
        if topic.endswith("-join")
    }


def test_the_joins_of_a_stream_with_a_table(topology_driver: DriverFactory) -> None:
    late = ("Z", Alphabet("Zoo", None))

    assert joins(stream_table(), topology_driver) == {
        "stream-table-join": BOTH,
        "stream-table-left-join": [*BOTH, RIGHT_MISSING, late],
    }
    assert joins(stream_global_table(), topology_driver) == {
        "stream-global-join": BOTH,
        "stream-global-left-join": [*BOTH, RIGHT_MISSING, late],
    }


def test_the_joins_of_two_tables(topology_driver: DriverFactory) -> None:
    found = joins(table_table(), topology_driver)

    late = ("Z", Alphabet("Zoo", None))
    assert found["table-table-join"] == BOTH
    assert found["table-table-left-join"] == [*BOTH, RIGHT_MISSING, late]
    assert found["table-table-outer-join"][0] == LEFT_MISSING
    assert found["table-table-outer-join"][2:] == [*BOTH, RIGHT_MISSING, late]


def test_the_joins_of_two_streams(topology_driver: DriverFactory) -> None:
    found = joins(stream_stream(), topology_driver)

    assert found["stream-stream-join"] == BOTH
    assert found["stream-stream-left-join"] == [*BOTH, RIGHT_MISSING]
    assert found["stream-stream-outer-join"] == [*BOTH, RIGHT_MISSING]


def test_topics_with_4_and_2_partitions_cannot_be_joined(tmp_path: Path) -> None:
    joined = KafkaStreams(stream_table(), application_id="joins")
    topics = {"alphabets_abbreviations": 4, "alphabets": 2}

    with (
        pytest.raises(TopologyError) as refused,
        in_process(joined, topics, tmp_path),
    ):
        pass

    assert "'alphabets' has 2, 'alphabets_abbreviations' has 4" in str(refused.value)


def test_a_global_table_joins_4_partitions_with_2(tmp_path: Path) -> None:
    joined = KafkaStreams(stream_global_table(), application_id="joins")
    topics = {"alphabets_abbreviations": 4, "alphabets": 2}

    with in_process(joined, topics, tmp_path) as run:
        run.write(FeedRecord("alphabets", *pair, START) for pair in LETTERS)
        run.write(FeedRecord("alphabets_abbreviations", *pair, START) for pair in ABBREVIATIONS)

        found = {each.key: each.value for each in run.read("stream-global-join")}
        assert found == dict(BOTH)


def test_bad_input_is_counted_and_kept() -> None:
    assert fates_of(app, FeedRecord("words", "A", "Apple", START)) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.PROCESSED,  # a text of two characters
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,  # `words-count` counts it, `value_list` has it once
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,
    }


TABLE = {
    "broken": Fate.DEAD_LETTER,
    "missing fields": Fate.PROCESSED,  # a text of two characters
    "null key": Fate.DROPPED,  # a table cannot hold it
    "tombstone": Fate.PROCESSED,  # it deletes
    "duplicate": Fate.PROCESSED,
    "late": Fate.PROCESSED,
    "future": Fate.PROCESSED,
}


def test_bad_input_of_a_table_is_counted_and_kept() -> None:
    assert fates_of(words_table(), FeedRecord("words", "A", "Apple", START)) == TABLE


def test_bad_input_of_a_global_table_is_counted_and_kept() -> None:
    word = FeedRecord("words", "A", "Apple", START)
    letter = FeedRecord("letters", 1, "A", START)
    no_text = {"tombstone": Fate.DROPPED, "null key": Fate.PROCESSED}

    # A global table has no task that could write a dead letter.
    assert fates_of(words_global_table(), word) == TABLE | {"broken": Fate.DROPPED}
    assert fates_of(words_global_table(), letter, before=[word]) == TABLE | no_text


@pytest.mark.parametrize("topic", ["alphabets", "alphabets_abbreviations"])
@pytest.mark.parametrize(
    "joined",
    [stream_table_app, stream_global_table_app, table_table_app, stream_stream_app],
    ids=lambda joined: str(joined.config.application_id),
)
def test_bad_input_of_a_join_is_counted_and_kept(joined: KafkaStreams, topic: str) -> None:
    is_global = joined is stream_global_table_app and topic == "alphabets"
    has_windows = joined is stream_stream_app

    fates = fates_of(joined, FeedRecord(topic, "A", "Apple", START))

    assert fates["broken"] is (Fate.DROPPED if is_global else Fate.DEAD_LETTER)
    assert fates["null key"] is (Fate.DROPPED if is_global else Fate.DEAD_LETTER)
    tables = {stream_stream_app: [], table_table_app: ["alphabets", "alphabets_abbreviations"]}
    deletes = topic in tables.get(joined, ["alphabets"])
    assert fates["tombstone"] is (Fate.PROCESSED if deletes else Fate.DEAD_LETTER)
    assert {fates["duplicate"], fates["missing fields"]} == {Fate.PROCESSED}
    of_time = Fate.DEAD_LETTER if has_windows else Fate.PROCESSED
    assert (fates["late"], fates["future"]) == (of_time, of_time)


def test_end_to_end_the_last_values_are_those_of_the_words(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(feed())

        words = [each for each in feed() if each.key and each.value]
        counts = {each.key: each.value for each in run.read("words-count")}
        reduced = {each.key: each.value for each in run.read("words-reduced")}
        assert sum(counts.values()) == len(words) == 58
        assert reduced["A"].startswith("Apple-Alpha-Ant-")
        assert len(run.read("words-dead")) == 2
