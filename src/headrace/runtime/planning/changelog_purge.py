"""Deletes the records of window and session changelogs that no store shows any more.

Kafka cannot do that by age: it compares event times with the clock.
"""

from __future__ import annotations

import logging

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.errors import StreamsError
from headrace.runtime.plan import ExecutionPlan
from headrace.runtime.snapshots import SnapshotRecord
from headrace.state.store_types.base import LoggedStoreType
from headrace.state.store_types.lookup import logged_type_of

_PURGE_SECONDS = 30.0

_log = logging.getLogger("headrace")


class ChangelogPurge:
    """Remembers where changelogs ended at which times, and deletes what has expired since.

    An entry is never later than its store's time when it was written. So all records below the ends
    of a snapshot have expired once the store's time in that snapshot has.

    Args:
        plan: The stores.
        log: Where their changelogs are.
        now: The time in seconds, of any clock.
    """

    def __init__(self, plan: ExecutionPlan, log: TopicLog, now: float) -> None:
        self._log = log
        self._types: dict[str, LoggedStoreType] = {}
        for topic, (_, store) in plan.changelogs.items():
            store_type = logged_type_of(store)
            if "delete" in store_type.cleanup_policy:
                self._types[topic] = store_type
        self._ends: dict[TopicPartition, dict[int, int]] = {}
        """By partition: the last end at which the store's time was in a segment."""
        self._purged_at = now

    def follow(self, record: SnapshotRecord, now: float) -> None:
        """Remember a snapshot that was written, and delete from time to time."""
        for topic, store_type in self._types.items():
            for partition, end in enumerate(record.ends.get(topic, ())):
                times = record.times(topic, partition)
                if times is not None and "time" in times:
                    name = TopicPartition(topic, partition)
                    segment = store_type.segment((b"", times["time"]))
                    self._ends.setdefault(name, {})[segment] = end
        if now - self._purged_at >= _PURGE_SECONDS:
            self._purged_at = now
            self._purge(record)

    def _purge(self, record: SnapshotRecord) -> None:
        for name, ends in self._ends.items():
            first = self._types[name.topic].first_segment(record.times(*name) or {})
            expired = [segment for segment in ends if segment < first]
            offset = max((ends[segment] for segment in expired), default=0)
            if not offset:
                continue
            try:
                self._log.delete_records({name: offset})
            except StreamsError as error:  # its user may have set another `cleanup.policy`
                _log.debug("Expired records of %s were not deleted: %s", name, error)
            for segment in expired:
                del ends[segment]
