"""Bounds the offsets of a batch in each input partition.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, OffsetOutOfRangeError
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.plan import ExecutionPlan
from headrace.runtime.planning.input_topics import InputTopics

_REFRESH_SECONDS = 5.0
"""How often topics, partitions and log start offsets are looked up."""
_SHORT_SECONDS = 10.0
"""How long a partition may end before the offset that was read: its new broker may lag."""


class InputBounds:
    """Asks the log for the bounds of the input partitions, and checks them."""

    def __init__(
        self, plan: ExecutionPlan, config: StreamsConfig, log: TopicLog, topics: InputTopics
    ) -> None:
        self._plan = plan
        self._fail_on_data_loss = config.fail_on_data_loss
        self._log = log
        self._topics = topics
        self._refreshed_at = time.monotonic()
        self._stop_offsets: dict[TopicPartition, int] | None = None
        self._start_overrides: dict[str, dict[str, int]] = {}
        self._start_overrides_for: BatchBoundary | None = None
        self._short_since: dict[TopicPartition, float] = {}
        self.must_check_starts = True
        """Whether partitions or log start offsets may be new since `start_overrides` was called."""
        self.ends: dict[TopicPartition, int] = {}
        """The end offsets that `refresh` found."""

    @property
    def has_stop_offsets(self) -> bool:
        """Return whether the query ends with the records that were there when it started."""
        return self._stop_offsets is not None

    def stop_at_current_ends(self) -> None:
        """Stop at the current end offsets, except in topics that the application writes itself."""
        self._stop_offsets = self._log.end_offsets(list(self._topics.partitions()))

    def refresh(self) -> dict[TopicPartition, int]:
        """Return the end offsets now. Every 5 s, also look for new topics and partitions."""
        if time.monotonic() - self._refreshed_at > _REFRESH_SECONDS:
            self._refreshed_at = time.monotonic()
            self._topics.refresh()
            self.must_check_starts = True
        self.ends = self._log.end_offsets(list(self._topics.partitions()))
        return self.ends

    def start_overrides(self, start: BatchBoundary) -> dict[str, dict[str, int]]:
        """Return where a batch begins in partitions that are new, or that lost records.

        Raises:
            OffsetOutOfRangeError: A partition lost records, and the settings forbid that.
        """
        if not self.must_check_starts:
            # They hold until a batch has begun there.
            return self._start_overrides if start == self._start_overrides_for else {}
        self.must_check_starts = False
        overrides: dict[str, dict[str, int]] = {}
        log_starts = self._log.beginning_offsets(list(self._topics.partitions()))
        for (topic, partition), log_start in log_starts.items():
            is_new = partition >= len(start.offsets.get(topic, ()))
            offset = start.offset(topic, partition)
            if log_start > offset:
                if not is_new and self._fail_on_data_loss:
                    raise OffsetOutOfRangeError(
                        topic, partition, offset=offset, beginning=log_start
                    )
                overrides.setdefault(topic, {})[str(partition)] = log_start
        self._start_overrides, self._start_overrides_for = overrides, start
        return overrides

    def available(
        self, start: BatchBoundary, begins: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return how many records a batch may read of each partition.

        Global tables come first: while one has records from before the start of the application,
        a batch reads nothing else.

        Raises:
            CheckpointError: A topic was deleted and recreated.
        """
        self._check_ends(begins)
        available = {
            partition: max(0, self.stop_offset(partition) - begin)
            for partition, begin in begins.items()
        }
        global_tables = {
            partition: min(count, load_end - begins[partition])
            for partition, count in available.items()
            if (load_end := _load_end(start, partition)) is not None
            and load_end > begins[partition]
        }
        return global_tables if any(global_tables.values()) else available

    def stop_offset(self, partition: TopicPartition) -> int:
        """Return up to where batches may read a partition."""
        end = self.ends[partition]
        if self._stop_offsets is None or partition.topic in self._plan.written_topics:
            return end
        # A partition that did not exist then has nothing to read.
        return min(end, self._stop_offsets.get(partition, 0))

    def _check_ends(self, begins: Mapping[TopicPartition, int]) -> None:
        """Check that no partition ends before the offset that the application has read."""
        for partition, end in self.ends.items():
            if end >= begins[partition]:
                self._short_since.pop(partition, None)
                continue
            # A broker that has just become its leader may not know its end offset yet.
            since = self._short_since.setdefault(partition, time.monotonic())
            if time.monotonic() - since > _SHORT_SECONDS:
                msg = (
                    f"Topic {partition.topic!r}, partition {partition.partition}, ends at {end}, "
                    f"but was read up to {begins[partition]}: it was deleted and recreated. Start "
                    f"again with `headrace reset {self._plan.application_id}`."
                )
                raise CheckpointError(msg)


def _load_end(start: BatchBoundary, partition: TopicPartition) -> int | None:
    """Return up to where a global table is loaded first; None of other topics."""
    load_ends = start.global_load_ends.get(partition.topic)
    if load_ends is None or partition.partition >= len(load_ends):
        return None
    return load_ends[partition.partition]
