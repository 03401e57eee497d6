"""Records, headers and timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from headrace.records import (
    NO_HEADERS,
    ConsumerRecord,
    FixedKeyRecord,
    Headers,
    Record,
    headers_of,
    readable,
    timestamp_ms,
    without_headers,
)

KINDS = pytest.mark.parametrize("kind", [Record, FixedKeyRecord])


def test_a_point_in_time_is_milliseconds_or_an_aware_datetime() -> None:
    plus_two = timezone(timedelta(hours=2))

    assert timestamp_ms(5) == 5
    assert timestamp_ms(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
    assert timestamp_ms(datetime(1970, 1, 1, 2, tzinfo=plus_two)) == 0


def test_a_datetime_is_cut_to_milliseconds() -> None:
    assert timestamp_ms(datetime(1970, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)) == 1


def test_a_datetime_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has no time zone.*`\.replace\(tzinfo=UTC\)`"):
        timestamp_ms(datetime(2024, 1, 1))


def test_headers_are_a_sequence() -> None:
    headers = Headers([("a", b"1"), ("b", None), ("a", b"2")])

    assert (len(headers), headers[0], list(headers[1:])) == (
        3,
        ("a", b"1"),
        [("b", None), ("a", b"2")],
    )
    assert isinstance(headers[1:], Headers)
    assert repr(headers[:1]) == "Headers([('a', b'1')])"


def test_headers_are_found_by_name() -> None:
    headers = Headers([("a", b"1"), ("b", None), ("a", b"2")])

    assert (headers.last("a"), headers.all("a")) == (b"2", [b"1", b"2"])
    assert (headers.last("x"), headers.all("x")) == (None, [])


def test_changed_headers_are_others() -> None:
    headers = Headers([("a", b"1")])

    assert headers.adding("b", None) == [("a", b"1"), ("b", None)]
    assert headers.adding("b", None).without("a") == [("b", None)]
    assert headers == [("a", b"1")]


def test_headers_equal_any_sequence_of_the_same_pairs() -> None:
    headers = Headers([("a", b"1")])

    assert headers == Headers([("a", b"1")])
    assert headers == (("a", b"1"),)
    assert headers != "a"
    assert hash(headers) == hash(Headers([("a", b"1")]))


def test_headers_are_used_as_they_are() -> None:
    headers = Headers()

    assert headers_of(headers) is headers
    assert headers_of([("a", b"1")]) == [("a", b"1")]


@KINDS
def test_a_record_takes_datetimes_and_pairs(kind: Any) -> None:
    record = kind("k", 1, datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), [("h", b"1")])

    assert (record.key, record.value, record.timestamp) == ("k", 1, 2000)
    assert record.headers == Headers([("h", b"1")])


@KINDS
def test_a_record_has_no_negative_time(kind: Any) -> None:
    with pytest.raises(ValueError, match="The timestamp -1 of the record is negative"):
        kind("k", 1, -1)


@KINDS
def test_a_record_is_copied_with_one_thing_changed(kind: Any) -> None:
    record = kind("k", 1, 5, [("h", b"1")])

    assert record.with_value(2) == kind("k", 2, 5, [("h", b"1")])
    assert record.with_timestamp(6) == kind("k", 1, 6, [("h", b"1")])
    assert record.with_headers([]) == kind("k", 1, 5)


def test_only_a_record_may_get_another_key() -> None:
    assert Record("k", 1, 5).with_key("other") == Record("other", 1, 5)
    assert not hasattr(FixedKeyRecord, "with_key")


def test_a_fixed_key_cannot_be_set() -> None:
    record = FixedKeyRecord("k", 1, 5)

    with pytest.raises(AttributeError):
        record.key = "other"  # type: ignore[misc]


def test_a_fixed_key_record_equals_its_like_alone() -> None:
    record = FixedKeyRecord("k", 1, 5)

    assert record == FixedKeyRecord("k", 1, 5)
    assert record != FixedKeyRecord("k", 2, 5)
    assert record != Record("k", 1, 5)
    assert repr(record) == "FixedKeyRecord(key='k', value=1, timestamp=5, headers=Headers([]))"


def test_headers_that_cannot_be_read_travel_with_their_record_as_others_do() -> None:
    record = ConsumerRecord("t", 0, 7, 5, b"k", b"v", Headers([("a", b"1")]))
    timestamp, headers = without_headers(record.timestamp, "no text: é")
    travelled = record._replace(timestamp=timestamp, headers=Headers(list(headers)))

    assert readable(travelled) == (record._replace(headers=NO_HEADERS), "no text: é")
    assert readable(record) == (record, None)


def test_a_record_without_a_time_has_headers_that_can_be_read() -> None:
    record = ConsumerRecord("t", 0, 7, -1, b"k", b"v", Headers([("a", b"1")]))

    assert readable(record) == (record, None)
