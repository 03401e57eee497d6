"""A store that is opened from its changelog and its times reads as the store that wrote them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from headrace.state.store_types.base import ChangelogRecord, StoreKind
from headrace.state.store_types.lookup import type_of
from tests.unit.state.written_stores import CASES, KEYS, PLAIN, Written, compacted, written


def test_there_is_a_case_for_each_kind_with_a_changelog() -> None:
    kinds = [replace(PLAIN, kind=kind) for kind in get_args(StoreKind)]
    logged = {spec.kind for spec in kinds if type_of(spec).has_changelog}

    assert logged == {spec.kind for spec, _, _ in CASES.values()}
    assert len(kinds) - len(logged) == 4


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("case", CASES)
def test_a_store_read_back_from_its_changelog_reads_as_it_did(case: str, seed: int) -> None:
    reads, before = CASES[case][2], written(case, seed)

    after = before.read_back()

    assert list(reads(after)) == list(reads(before.store))
    assert list(reads(after)) == list(reads(before.read_back())), "reads change nothing"


@pytest.mark.parametrize("case", [case for case in CASES if case != "versioned_key_value"])
def test_a_compacted_changelog_gives_the_same_store(case: str) -> None:
    reads, before = CASES[case][2], written(case, seed=9)

    after = before.read_back(compacted(before.records))

    assert list(reads(after)) == list(reads(before.store))


@pytest.mark.parametrize("seed", range(5))
def test_a_compacted_changelog_has_the_latest_versions(seed: int) -> None:
    before = written("versioned_key_value", seed)

    after = before.read_back(compacted(before.records))

    assert [after.get(key) for key in KEYS] == [before.store.get(key) for key in KEYS]


def test_the_latest_version_follows_an_older_one() -> None:
    opened = Written(CASES["versioned_key_value"][0])
    for value, time in [(1, 10), (2, 30)]:
        opened.store.put(b"k", value, time)
    opened.commit()
    opened.store.put(b"k", 3, 20)
    opened.store.put(b"k", 4, 15)
    opened.commit()

    assert [(record.value and record.value[-1], record.timestamp) for record in opened.records] == [
        (1, 10),
        (2, 30),
        (3, 20),
        (4, 15),
        (2, 30),
    ]


def test_the_deletion_of_the_latest_version_follows_an_older_one() -> None:
    opened = Written(CASES["versioned_key_value"][0])
    for value, time in [(1, 10), (None, 30), (2, 20)]:
        opened.store.put(b"k", value, time)
    opened.commit()

    assert opened.records[-1] == ChangelogRecord(b"k", None, 30)
    assert opened.read_back(compacted(opened.records)).get(b"k") is None


def test_a_later_version_needs_no_repetition() -> None:
    opened = Written(CASES["versioned_key_value"][0])
    for value, time in [(2, 30), (1, 10), (3, 40)]:
        opened.store.put(b"k", value, time)
    opened.commit()

    assert [record.timestamp for record in opened.records] == [30, 10, 40]


@pytest.mark.parametrize("case", ["window", "session"])
def test_a_reader_sees_nothing_that_the_time_of_the_store_has_expired(case: str) -> None:
    spec, put, _ = CASES[case]
    opened = Written(spec)
    put(opened, b"k", 1, 1_000)
    opened.commit()
    put(opened, b"other", 2, 900_000)
    opened.changelog.take()  # the reader has the time, and not the record

    assert list(opened.read_back().all()) == []


def test_a_reader_sees_no_version_that_the_time_of_the_store_has_expired() -> None:
    opened = Written(CASES["versioned_key_value"][0])
    opened.store.put(b"k", 1, 1_000)
    opened.store.put(b"k", 2, 2_000)
    opened.commit()
    opened.store.put(b"other", 3, 900_000)

    after = opened.read_back()

    assert (after.get(b"k").value, after.get(b"k", 1_500)) == (2, None)
