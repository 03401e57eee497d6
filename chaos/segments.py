"""Finds the transaction that wrote each offset, in the files of the brokers.

Transactions lie between each other in a partition, so that a reader cannot see from offsets alone
where one ends; the batches in the files name their producers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from chaos.contract import Log

_BATCH = Struct(">qiibIhiqqqh")
"""How a batch begins: from its first offset to the id and the epoch of its producer."""
_EPOCH_BITS = 16
_LENGTH_END = 12
"""The length of a batch counts what follows it."""


class Batch(NamedTuple):
    """Records that a producer sent together."""

    first: int
    producer: tuple[int, int]
    """Its id and its epoch, which is another one for each transaction of an application."""

    @property
    def unit(self) -> int:
        """The identity of a transaction, the same in all of its partitions."""
        id_, epoch = self.producer
        return (id_ << _EPOCH_BITS) + epoch


def batches_of(folder: Path) -> Iterator[Batch]:
    """Yield the batches in the folder of a partition, in the order of their offsets."""
    for path in sorted(folder.glob("*.log")):
        data, start = path.read_bytes(), 0
        while start + _BATCH.size <= len(data):
            first, length, *_, producer, epoch = _BATCH.unpack_from(data, start)
            yield Batch(first, (producer, epoch))
            start += _LENGTH_END + length


def with_units(log: Log, folders: Iterable[Path]) -> Log:
    """Return records with the transactions they belong to.

    Args:
        log: The records that were read.
        folders: The data of the brokers; what most of them have is the same in all.
    """
    found: Log = {}
    for topic, partitions in log.items():
        found[topic] = {}
        for number, records in partitions.items():
            copies = [list(batches_of(folder / f"{topic}-{number}")) for folder in folders]
            batches = max(copies, key=len)
            firsts = [batch.first for batch in batches]
            found[topic][number] = [
                each._replace(unit=batches[bisect_right(firsts, each.offset) - 1].unit)
                for each in records
            ]
    return found
