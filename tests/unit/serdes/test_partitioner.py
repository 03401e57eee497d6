"""Kafka's hash, bit for bit. Values from Kafka's own UtilsTest."""

from __future__ import annotations

import pytest

from headrace.serdes.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed


def test_the_partition_is_the_hash_without_its_sign_modulo_the_partitions() -> None:
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
    assert [partition_for_key(b"abc", 7), partition_for_key(b"abc", 1000)] == [4, 107]


def test_a_topic_may_have_one_partition() -> None:
    assert partition_for_key(b"abc", 1) == 0


def test_a_key_may_be_long() -> None:
    # From a plain implementation of the algorithm, as property tests compare with.
    assert murmur2(b"0123456789" * 30) == -203910773


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_has_partitions(partitions: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1 partition, but got {partitions}"):
        partition_for_key(b"a", partitions)
