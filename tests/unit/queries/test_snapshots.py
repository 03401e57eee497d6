from __future__ import annotations

import msgspec
import pytest

from headrace.errors import QueryError
from headrace.runtime.snapshots import (
    decode_snapshot,
    digest_topic_ids,
    encode_snapshot,
    is_reflected,
    merged,
    newest_record,
    raised_position,
)
from tests.unit.queries.snapshot_records import make_record


def test_a_record_survives_its_json() -> None:
    record = make_record(
        812,
        batch=812,
        ends={"app-a": [3, 5]},
        changes={"app-a": {1: 2}},
        store_times={"app-a": [None, {"time": 7, "sequence": 1}]},
        position={"input": [9, -1]},
        stats={"tasks": 2},
    )

    assert decode_snapshot(encode_snapshot(record)) == record


def test_json_has_the_names_of_the_protocol_and_partitions_as_text() -> None:
    fields = msgspec.json.decode(encode_snapshot(make_record(3, changes={"app-a": {0: 4}})))

    assert [*fields] == [
        "format", "history", "leader_epoch", "snapshot", "batch", "layout", "topics", "clock",
        "at", "ends", "since", "changes", "store_times", "position", "stats",
    ]  # fmt: skip
    assert fields["format"] == 1
    assert fields["changes"] == {"app-a": {"0": 4}}


def test_a_reader_ignores_fields_that_it_does_not_know() -> None:
    fields = msgspec.json.decode(encode_snapshot(make_record(3)))

    record = decode_snapshot(msgspec.json.encode({**fields, "new": [1]}))

    assert record == make_record(3)


def test_a_reader_refuses_a_higher_format_whatever_else_it_holds() -> None:
    with pytest.raises(QueryError, match=r"has format 2, and this .* reads up to 1\. Upgrade"):
        decode_snapshot(b'{"format": 2, "ends": "other"}')


def test_a_reader_refuses_bytes_that_are_no_record() -> None:
    with pytest.raises(QueryError, match="cannot be read"):
        decode_snapshot(b'{"format": 1}')


def test_the_highest_leader_epoch_counts_and_then_the_highest_number() -> None:
    late = make_record(12, leader_epoch=1)
    newest = make_record(11, leader_epoch=2)

    assert newest_record([make_record(10, leader_epoch=2), newest, late]) is newest
    assert newest_record([]) is None


def test_a_record_that_replaces_one_has_the_changes_of_both() -> None:
    older = make_record(11, changes={"app-a": {0: 1, 1: 2}})
    newer = make_record(12, changes={"app-a": {1: 3}, "app-b": {0: 4}}, ends={"app-a": [9, 9]})

    both = merged(older, newer)

    assert (both.snapshot, both.since, both.ends) == (12, 10, newer.ends)
    assert both.changes == {"app-a": {0: 1, 1: 5}, "app-b": {0: 4}}


def test_changes_stay_unknown_in_a_record_that_replaces_one() -> None:
    unknown = make_record(11, changes=None)

    assert merged(unknown, make_record(12)).changes is None


def test_a_partition_that_a_snapshot_does_not_have_ends_at_its_beginning() -> None:
    record = make_record(3, ends={"app-a": [5]}, changes={"app-a": {0: 1}})

    assert [record.end("app-a", 0), record.end("app-a", 1), record.end("app-b", 0)] == [5, 0, 0]
    assert [record.change_count("app-a", 0), record.change_count("app-a", 1)] == [1, 0]
    assert make_record(3, changes=None).change_count("app-a", 0) is None
    assert record.times("app-a", 0) is None


def test_a_position_never_falls() -> None:
    position = raised_position({"a": [5, -1], "b": [1]}, {"a": [3, 2, 7]})

    assert position == {"a": [5, 2, 7], "b": [1]}


def test_a_position_reflects_what_is_before_it() -> None:
    position = {"input": [5, -1]}

    assert is_reflected(position, "input", 0, 4)
    assert not is_reflected(position, "input", 0, 5)
    assert not is_reflected(position, "input", 1, 0)
    assert not is_reflected(position, "input", 2, 0)
    with pytest.raises(QueryError, match="'other' is no input"):
        is_reflected(position, "other", 0, 0)


def test_the_digest_of_topic_ids_depends_on_each_id() -> None:
    assert digest_topic_ids({"a": "1", "b": "2"}) == digest_topic_ids({"b": "2", "a": "1"})
    assert digest_topic_ids({"a": "1"}) != digest_topic_ids({"a": "2"})
