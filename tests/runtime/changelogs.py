"""The contents of stores, from their changelog topics and from the stores themselves."""

from __future__ import annotations

from typing import Any

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.queries.store_views import open_store
from headrace.records import ConsumerRecord
from headrace.runtime.in_process import global_task_in
from headrace.runtime.plan import GLOBAL_SUBTOPOLOGY
from headrace.state.maps import MemoryStores
from headrace.state.store_types.base import ChangelogRecord
from headrace.state.store_types.lookup import logged_type_of
from tests.runtime.in_process import InProcessQuery
from tests.unit.queries.copied_stores import CopiedStore


def changes(log: TopicLog, topic: str, partition: int) -> list[ConsumerRecord]:
    """Return the records of a partition of a changelog."""
    name = TopicPartition(topic, partition)
    end = log.end_offsets([name])[name]
    return [record for records in log.read(name, 0, end) for record in records]


def changelogs_that_differ(query: InProcessQuery) -> list[str]:
    """Return the changelogs that make other stores than those of their tasks, in words.

    They make stores for readers, and the copies of instances.
    """
    found = []
    for topic, (subtopology, spec) in query.plan.changelogs.items():
        tasks = query.tasks_of(spec.name)
        if subtopology == GLOBAL_SUBTOPOLOGY:
            stage = query.plan.global_stages()[0]
            tasks = [global_task_in(query._blobs, query.program, stage, 0)]
        assert query.log.partition_count(topic) == max(1, len(tasks)), topic
        for partition, task in enumerate(tasks):
            records = [
                ChangelogRecord(record.key or b"", record.value, record.timestamp)
                for record in changes(query.log, topic, partition)
            ]
            store_type, backend = logged_type_of(spec), MemoryStores()
            store_type.apply(records, backend)
            times = store_type.times.from_saved(task.save().store_times.get(spec.name, {}))
            restored = _content(store_type.open_for_reading(backend, times), records)
            held = _content(task.stores[spec.name], records)
            if restored != held:
                found.append(f"{topic} {partition}: {restored} and not {held}")
            copy = CopiedStore(spec)
            shown = copy.apply(records, times.saved())
            copied = _content(open_store(shown, copy.store, 0), records)
            if copied != held:
                found.append(f"copy of {topic} {partition}: {copied} and not {held}")
    return found


def _content(store: Any, records: list[ChangelogRecord]) -> list[Any]:
    """Return all entries; of a versioned store, those of each time at which something changed."""
    if hasattr(store, "all"):
        return list(store.all())
    keys = {record.key: store._keys.decode(record.key) for record in records}
    times = sorted({at for record in records for at in (record.timestamp, record.timestamp + 1)})
    return [(key, time, store.get(key, time)) for key in keys.values() for time in times]
