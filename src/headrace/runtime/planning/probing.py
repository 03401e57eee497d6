"""How many records the next batch may have, after a look at how large they are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from heapq import nlargest

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.errors import OffsetOutOfRangeError
from headrace.runtime.planning.admission import Admission

_FEW = 250
"""Fewer records fit into memory, even if each is as large as a topic takes by default: 1 MB."""
_LOOKS = 3
_PARTITIONS = 16


class Probing:
    """Looks into what a batch would read, because the batches before may have had smaller records.

    A look is one record at the begin, in the middle and at the end of what is read of a partition.

    Args:
        log: Where the records are.
    """

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self._is_first = True

    def shares(
        self,
        admission: Admission,
        begins: Mapping[TopicPartition, int],
        available: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return how many records of each partition the next batch reads.

        Args:
            admission: Knows the batches before.
            begins: Where each partition is to be read from.
            available: How many records there are from there on.
        """
        shares = admission.shares(available)
        records = sum(shares.values())
        if records == 0 or (records < _FEW and not self._is_first):
            return shares
        self._is_first = False
        admission.expect(self._mean_size(begins, shares))
        return admission.shares(available)

    def _mean_size(
        self, begins: Mapping[TopicPartition, int], shares: Mapping[TopicPartition, int]
    ) -> float:
        """Return about how many bytes a record of a batch has."""
        largest = nlargest(_PARTITIONS, shares, key=lambda name: shares[name])
        seen: dict[TopicPartition, list[int]] = {name: [] for name in largest}
        for look in range(_LOOKS):
            placements = {
                name: begins[name] + (shares[name] - 1) * look // (_LOOKS - 1) for name in largest
            }
            # What is gone meanwhile is told by those who read it.
            with suppress(OffsetOutOfRangeError):
                for name, columns in self._log.read_ranges(
                    [(name, placement, placement + 1) for name, placement in placements.items()]
                ):
                    seen[name].append(columns.size())
        means = {name: sum(sizes) / len(sizes) for name, sizes in seen.items() if sizes}
        looked_at = sum(shares[name] for name in means)
        return sum(shares[name] * mean for name, mean in means.items()) / max(1, looked_at)
