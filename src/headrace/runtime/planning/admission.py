"""How many records the next batch may have: as many as the last ones managed in a given time."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.brokers.log import TopicPartition

FIRST_RECORDS = 20_000
FIRST_TABLE_RECORDS = 200_000
"""What the first batch may read of tables besides: a stream that is joined waits for its table."""
MAX_RECORDS = 1_000_000
MAX_BYTES = 256 << 20
MIN_RECORDS = 1_000
TARGET_SECONDS = 8.0
"""What a batch may take that has more records to choose from than it can take."""
_STEP = 8


class Admission:
    """Follows the time that batches take, within bounds of records and bytes.

    A planned batch cannot be made smaller afterwards, because Spark replays it as it was; so the
    limit grows in steps, and what a record takes in bytes is known from the batches before.

    Args:
        max_records: How many records a batch may have at most.
        max_bytes: How large they may be at most.
        tables: The topics that are read as tables.
    """

    def __init__(
        self,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        tables: Collection[str] = (),
    ) -> None:
        self._tables = frozenset(tables)
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._batches = 0
        self._bytes_per_record = 0.0
        self.limit = min(FIRST_RECORDS, max_records)
        """How many records the next batch may have."""

    def learn(self, records: int, seconds: float, size: int) -> None:
        """Take a finished batch into account.

        Args:
            records: How many records it had.
            seconds: How long it took.
            size: How many bytes they were.
        """
        self._batches += 1
        if records:
            self._bytes_per_record = max(size / records, 0.5 * self._bytes_per_record)
        # The first batch starts everything, and a batch far below the limit tells nothing of it.
        if self._batches > 1 and records >= self.limit // 2:
            wanted = int(records / max(seconds, 0.001) * TARGET_SECONDS)
            self.limit = max(self.limit // _STEP, min(wanted, self.limit * _STEP))
        elif records >= self.limit // 2:
            self.limit *= _STEP
        self.limit = max(MIN_RECORDS, min(self.limit, self._max_records))
        self._keep_within_bytes()

    def expect(self, size: float) -> None:
        """Take into account how many bytes the next records have, before a batch has told."""
        self._bytes_per_record = max(size, self._bytes_per_record)
        self._keep_within_bytes()

    def _keep_within_bytes(self) -> None:
        self.limit = self._within_bytes(self.limit)

    def _within_bytes(self, records: int) -> int:
        if not self._bytes_per_record:
            return records
        return max(1, min(records, int(self._max_bytes / self._bytes_per_record)))

    def shares(self, available: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return how many records of each partition the next batch reads; at least one of each."""
        if self._batches:
            return _shares(available, self.limit)
        first: dict[bool, dict[TopicPartition, int]] = {True: {}, False: {}}
        for name, count in available.items():
            first[name.topic in self._tables][name] = count
        of_tables = self._within_bytes(min(FIRST_TABLE_RECORDS, self._max_records))
        return {**_shares(first[True], of_tables), **_shares(first[False], self.limit)}


def _shares(available: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    shares: dict[TopicPartition, int] = {}
    left = limit
    waiting = sorted((count, name) for name, count in available.items() if count > 0)
    for position, (count, name) in enumerate(waiting):
        share = max(1, min(count, left // (len(waiting) - position)))
        shares[name] = share
        left = max(0, left - share)
    return shares
