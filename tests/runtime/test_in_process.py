"""Cutting the input into batches changes no result, and a replayed batch writes nothing."""

from __future__ import annotations

import logging
from copy import deepcopy
from itertools import islice
from pathlib import Path

import pytest
from headrace_conformance.groups import built, groups

from headrace.topology.naming import markers_name
from tests.runtime.changelogs import changelogs_that_differ
from tests.runtime.in_process import InProcessQuery
from tests.runtime.random_cuts import CutQuery, by_key, is_merge, may_be_cut

CASES = {name: case for name, case in built().items() if may_be_cut(*case)}
LARGE = [group for group in groups(CASES) if len(group) > 50]
GROUPS = [dict(islice(LARGE[0].items(), 0, None, 4)), *LARGE]
"""Every fourth scenario of the largest group, and all groups."""
IN_TURN = pytest.mark.parametrize(
    "number",
    [
        0,
        *(
            pytest.param(number, marks=pytest.mark.nightly("cuts"))
            for number in range(1, len(GROUPS))
        ),
    ],
)
SEEDS = [(0, 1), (1, 2), (2, 5)]
"""A seed, and how many partitions a shuffle has."""

KEYS_MOVE = ("processor-api/forward-many",)
"""Programs that write one key from several tasks, without a repartition."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # scenarios drop records on purpose


@IN_TURN
def test_random_batches_of_three_partitions_write_what_the_tasks_write_at_once(
    number: int, tmp_path: Path
) -> None:
    seed, shuffle_partitions = SEEDS[number % len(SEEDS)]
    cases = {name: case for name, case in GROUPS[number].items() if name not in KEYS_MOVE}
    cut = CutQuery(
        cases,
        tmp_path,
        repartitioned=False,
        partitions=3,
        shuffle_partitions=shuffle_partitions,
        seed=seed,
    )
    expected = cut.expected_of_tasks()
    cut.cut_by(seed)
    cut.query.run()

    written = cut.written()
    assert cut.fed > 50
    assert cut.query.batches > 3
    assert written.keys() == expected.keys()
    for name, tasks in expected.items():
        of_tasks = [by_key(records) for records in tasks]
        records = by_key(written[name])
        assert records.keys() == {key for task in of_tasks for key in task}
        for key, found in records.items():
            # Several tasks may write one key: a punctuation of each does. Only each has an order.
            sequences = [task[key] for task in of_tasks if key in task]
            assert is_merge(found, sequences), f"{name}, key {key!r}: {found} of {sequences}"
    assert changelogs_that_differ(cut.query) == []


@IN_TURN
def test_random_batches_through_repartitions_write_what_the_tasks_write_at_once(
    number: int, tmp_path: Path
) -> None:
    seed, shuffle_partitions = SEEDS[number % len(SEEDS)]
    cut = CutQuery(
        GROUPS[number],
        tmp_path,
        repartitioned=True,
        partitions=1,
        shuffle_partitions=shuffle_partitions,
        seed=seed,
    )
    expected = cut.expected()
    cut.cut_by(seed)
    cut.query.run()

    assert cut.fed > 10
    assert cut.written() == expected
    assert changelogs_that_differ(cut.query) == []


@IN_TURN
def test_where_rows_go_and_in_which_order_shows_nowhere(number: int, tmp_path: Path) -> None:
    written = []
    for seed, shuffle_partitions in SEEDS:
        cut = CutQuery(
            GROUPS[number],
            tmp_path / str(seed),
            repartitioned=True,
            partitions=3,
            shuffle_partitions=shuffle_partitions,
            seed=seed,
        )
        cut.cut_by(7)
        cut.query.run()
        written.append({name: by_key(each) for name, each in cut.written().items()})

    assert any(written[0].values())
    assert written[1] == written[0]
    assert written[2] == written[0]


@IN_TURN
def test_a_batch_that_is_run_again_writes_nothing_or_the_same(number: int, tmp_path: Path) -> None:
    cut = CutQuery(GROUPS[number], tmp_path, repartitioned=bool(number % 2), partitions=2, seed=1)
    cut.cut_by(3)
    query, records = cut.query, 0
    while True:
        start, before = query.position, deepcopy(query._blobs)  # Spark's versions
        if not query.batch():
            break
        first, after = cut.written(changelogs=True), contents(query)
        query.batches -= 1

        query._blobs = deepcopy(before)
        query.replay(start, query.position)
        assert cut.written(changelogs=True) == {}, "its markers are there"
        assert contents(query) == after

        query.log.delete_group(markers_name("oracle"))
        query._blobs = deepcopy(before)
        query.replay(start, query.position)
        assert cut.written(changelogs=True) == first, "nothing but the batch decides what it writes"
        assert contents(query) == after
        query.batches += 1
        records += sum(map(len, first.values()))
    assert records > 10


def contents(query: InProcessQuery) -> dict[tuple[int, int], dict[bytes, bytes]]:
    return {group: dict(blobs.blobs) for group, blobs in query._blobs.items() if blobs.blobs}
