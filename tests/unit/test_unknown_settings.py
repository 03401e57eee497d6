"""Names that no setting has: the nearest one is suggested, and others are the application's own."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace import StreamsConfig
from tests.unit.test_streams_config import problems_of


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("aplication_id", "is not a setting. Did you mean `application_id`?"),
        ("zzzz", "is not a setting. Remove it."),
        ("commit_interval_ms", "is not a keyword. Write `commit_interval`."),
        ("commit.interval.ms", "is not a keyword. Write `commit_interval`."),
        ("default_production_exception_handler", "Write `production_exception_handler`."),
        ("consumer.max.poll.records", "Write `consumer={'max.poll.records': …}`."),
        ("consumer_max_poll_records", "Write `consumer={'max.poll.records': …}`."),
        ("main_consumer_fetch_min_bytes", "Write `main_consumer={'fetch.min.bytes': …}`."),
        ("spark_master", "Write `spark={'spark.master': …}`."),
        ("auto_offset_reset", "Write `consumer={'auto.offset.reset': …}`."),
        ("linger", "Write `producer={'linger.ms': …}`."),
        ("ssl_cipher_suites", "Write `consumer={'ssl.cipher.suites': …}`."),
        ("window_size", "is not a keyword. Give `key=Serdes.time_windowed(inner, size)`"),
        ("num_standby_replica", "Did you mean `num_standby_replicas`?"),
        ("poll", "It would have no effect: Batches follow"),
    ],
)
def test_an_unknown_keyword_gets_the_right_one(keyword: str, message: str) -> None:
    (problem,) = problems_of(lambda: cast(Any, StreamsConfig)(**{keyword: 1}))

    assert problem.startswith(f"`{keyword}` is not a ")
    assert message in problem


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aplication.id", "is not a setting. Did you mean `application.id`?"),
        ("commit.interval", "Did you mean `commit.interval.ms`?"),
        ("consummer.max.poll.records", "Did you mean `consumer.max.poll.records`?"),
        ("appliaction.id", "Did you mean `application.id`?"),
        ("applicatiom.id", "Did you mean `application.id`?"),
        ("app_configs", "is a keyword of Python code. Here write the names in it."),
        ("application_id", "is a keyword of Python code. Here write `application.id`."),
        ("commit_interval", "is a keyword of Python code. Here write `commit.interval.ms`."),
        ("consumer", "is a keyword of Python code. Here write `consumer.…`."),
        ("commit_interval_ms", "Kafka's names have dots. Write `commit.interval.ms`."),
        ("max_poll_records", "Kafka's names have dots. Write `max.poll.records`."),
        ("processor.wrapper.class", "cannot be followed here. Remove it, and wrap"),
    ],
)
def test_an_unknown_name_gets_the_right_one(name: str, message: str) -> None:
    (problem,) = problems_of(lambda: StreamsConfig.from_properties({name: 1}))

    assert problem.startswith(f"`{name}` ")
    assert message in problem


def test_a_name_that_is_no_text_is_refused() -> None:
    assert problems_of(lambda: StreamsConfig.from_properties({5: 6})) == [  # type: ignore[dict-item]
        "5 is not the name of a setting. Use text."
    ]
