"""Grouping keys: Spark's hash, and an even spread over the partitions of a shuffle."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from headrace.runtime.exchange.grouping_keys import (
    grouping_keys_for,
    relay_keys,
    shuffle_partition,
)

# The results of `SELECT hash(n)`.
SPARK_HASHES = {0: 933211791, 1: -559580957, -1: -1604776387}


@pytest.mark.parametrize(("grouping_key", "hashed"), SPARK_HASHES.items())
def test_groups_are_hashed_as_spark_does(grouping_key: int, hashed: int) -> None:
    modulus = 2**32

    assert shuffle_partition(grouping_key, modulus) == hashed % modulus


@pytest.mark.parametrize("partitions", [1, 2, 7, 200])
def test_a_partition_is_spark_s_positive_remainder(partitions: int) -> None:
    found = {
        grouping_key: shuffle_partition(grouping_key, partitions) for grouping_key in SPARK_HASHES
    }

    assert found == {
        grouping_key: hashed % partitions for grouping_key, hashed in SPARK_HASHES.items()
    }


@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_every_partition_has_groups_of_its_own(partitions: int) -> None:
    grouping_keys = {
        grouping_key: partition
        for partition in range(partitions)
        for grouping_key in islice(grouping_keys_for(partition, partitions), 5)
    }

    assert all(
        shuffle_partition(grouping_key, partitions) == home
        for grouping_key, home in grouping_keys.items()
    )
    assert Counter(grouping_keys.values()) == dict.fromkeys(range(partitions), 5)


def test_groups_come_nearest_to_zero_first() -> None:
    found = list(islice(grouping_keys_for(0, 2), 20))
    negative = list(islice(grouping_keys_for(0, 2, negative=True), 20))

    assert found == sorted(found)
    assert found[0] >= 0
    assert negative == sorted(negative, reverse=True)
    assert negative[0] < 0


def test_relay_keys_belong_to_their_partition_and_to_no_task() -> None:
    firsts = [next(grouping_keys_for(partition, 3)) for partition in range(3)]

    keys = relay_keys(firsts)

    assert [own[0] for own in keys] == firsts
    for partition, own in enumerate(keys):
        assert len(set(own)) == 16
        assert {shuffle_partition(grouping_key, 3) for grouping_key in own} == {partition}
        assert min(own[1:]) >= 2**30
    assert max(max(own) for own in keys) < 2**31
