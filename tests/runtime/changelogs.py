"""The contents of stores, from their changelog topics and from the stores themselves."""

from __future__ import annotations

from typing import Any

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.durations import MAX_MS
from headrace.records import ConsumerRecord
from headrace.state.specs import StoreBuilder
from tests.runtime.in_process import InProcessQuery


def changes(log: TopicLog, topic: str, partition: int) -> list[ConsumerRecord]:
    """Return the records of a partition of a changelog."""
    name = TopicPartition(topic, partition)
    end = log.end_offsets([name])[name]
    return [record for records in log.read(name, 0, end) for record in records]


def changelogs_that_differ(query: InProcessQuery) -> list[str]:
    """Return the changelogs that say something else than the stores of their tasks, in words."""
    found = []
    for topic, (_, spec) in query.plan.changelogs.items():
        tasks = query.tasks_of(spec.name)
        assert query.log.partition_count(topic) == max(1, len(tasks)), topic
        for partition, task in enumerate(tasks):
            records = changes(query.log, topic, partition)
            store = task.stores[spec.name]
            said, held = _BY_KIND[spec.kind](spec, store, records)
            if said != held:
                found.append(f"{topic} {partition}: {said} and not {held}")
    return found


def _key_values(
    spec: StoreBuilder[Any], store: Any, records: list[ConsumerRecord]
) -> tuple[Any, Any]:
    stamped = spec.kind == "timestamped_key_value"
    said = {
        spec.key.need.deserialize(key): _shown(spec, record, stamped=stamped)
        for key, record in _last_of(records).items()
    }
    return said, dict(store.all())


def _windows(spec: StoreBuilder[Any], store: Any, records: list[ConsumerRecord]) -> tuple[Any, Any]:
    stamped = spec.kind == "timestamped_window"
    said: dict[Any, list[Any]] = {}
    for key, record in _last_of(records).items():
        start = int.from_bytes(key[-12:-4], "big")
        if start >= store._entries.oldest:
            windowed = spec.key.need.deserialize(key[:-12]), start
            said.setdefault(windowed, []).append(_shown(spec, record, stamped=stamped))
    held: dict[Any, list[Any]] = {}
    for windowed, value in store.fetch_all(0, MAX_MS):
        held.setdefault((windowed.key, windowed.window.start), []).append(value)
    return said, held


def _sessions(
    spec: StoreBuilder[Any], store: Any, records: list[ConsumerRecord]
) -> tuple[Any, Any]:
    said = {}
    for key, record in _last_of(records).items():
        end, start = int.from_bytes(key[-16:-8], "big"), int.from_bytes(key[-8:], "big")
        if end >= store._entries.oldest:
            said[spec.key.need.deserialize(key[:-16]), start, end] = _shown(spec, record)
    held = {
        (windowed.key, windowed.window.start, windowed.window.end): value
        for windowed, value in store.all()
    }
    return said, held


def _versions(
    spec: StoreBuilder[Any], store: Any, records: list[ConsumerRecord]
) -> tuple[Any, Any]:
    """Return the value of each key at each time at which something changed."""
    versions: dict[Any, dict[int, Any]] = {}
    for record in records:
        key = spec.key.need.deserialize(record.key)
        versions.setdefault(key, {})[record.timestamp] = _shown(spec, record)
    times = sorted({at for record in records for at in (record.timestamp, record.timestamp + 1)})
    said: dict[Any, Any] = {}
    held: dict[Any, Any] = {}
    for key, of_key in versions.items():
        latest = max(of_key)
        for time in times:
            if time < store._oldest and time < latest:
                continue
            since = max((each for each in of_key if each <= time), default=None)
            value = None if since is None else of_key[since]
            said[key, time] = None if value is None else (value, since)
            found = store.get(key, time)
            held[key, time] = None if found is None else (found.value, found.timestamp)
    return said, held


def _last_of(records: list[ConsumerRecord]) -> dict[bytes, ConsumerRecord]:
    last: dict[bytes, ConsumerRecord] = {}
    for record in records:
        assert record.key is not None, "a change is of a key"
        last.pop(record.key, None)
        if record.value is not None:
            last[record.key] = record
    return last


def _shown(spec: StoreBuilder[Any], record: ConsumerRecord, *, stamped: bool = False) -> Any:
    if record.value is None:
        return None
    value = spec.value.need.deserialize(record.value)
    return (value, record.timestamp) if stamped else value


_BY_KIND = {
    "key_value": _key_values,
    "timestamped_key_value": _key_values,
    "lru_map": _key_values,
    "window": _windows,
    "timestamped_window": _windows,
    "session": _sessions,
    "versioned_key_value": _versions,
}
