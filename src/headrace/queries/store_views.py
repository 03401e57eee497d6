"""The stores of a snapshot: the code of the engine over a view, and the rows that queries need."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from itertools import chain, dropwhile
from typing import Any, NamedTuple

from headrace.brokers.log import TopicPartition
from headrace.durations import MAX_MS
from headrace.queries.catalog import EntryCount, QueryableStore
from headrace.queries.copy.entry_maps import ViewStores
from headrace.queries.copy.keys import (
    HEADER_SIZE,
    LATEST_SEGMENT,
    entry_prefix,
    from_sorted_key,
    segment_number,
    segment_prefix,
    sorted_key,
    unpack_header,
)
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import (
    FetchSessions,
    FetchVersions,
    FetchWindows,
    GetKey,
    Operation,
    Row,
    RowBatch,
    ScanKeys,
    batches_of,
    key_of,
)
from headrace.queries.scanned_rows import scan_batches
from headrace.state.segmented_entries import Entry, EntryKey
from headrace.state.store_types.key_value import KeyValueType
from headrace.state.store_types.lookup import kind_in_words
from headrace.state.store_types.versioned import VersionedType
from headrace.state.store_types.window import SessionType, WindowType
from headrace.state.versioned import Versioned

LARGE_PARTITION = 10_000
"""The entries of a partition up to which a count is always exact."""
_NUMBER_BYTES = 8
_SIGNED = 1 << 63


class ChangedKey(NamedTuple):
    """The key of an entry that a snapshot has changed."""

    key: bytes
    start: int | None
    """The start of the window or session."""
    end: int | None
    position: bytes
    """Where the entry lies among the changed keys of its shard and snapshot."""


def open_store(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    *,
    raw: bool = False,
    after: bytes | None = None,
) -> Any:
    """Return a store as it was at a snapshot: the engine's own, which nobody can change.

    Args:
        shown: The snapshot.
        store: The store.
        partition: The partition.
        raw: Whether keys and values are bytes.
        after: Scans leave out the entries up to this position in their direction.

    Raises:
        QueryProblemError: The snapshot does not have the shard.
    """
    prefix = _checked_prefix(shown, store, partition)
    store_type = store.raw_type if raw else store.type
    saved = shown.record.times(store.changelog, partition) or {}
    backend = ViewStores(shown.view, prefix, None if after is None else prefix + after)
    return store_type.open_for_reading(backend, store_type.times.from_saved(saved))


def get_entry(
    shown: ShownSnapshot, store: QueryableStore, partition: int, key: bytes
) -> tuple[bytes, int | None] | None:
    """Return the value of a key and its timestamp, or None: the fast way to one entry.

    The timestamp is None in a store that keeps none. Of a versioned store it is the latest version.

    Raises:
        QueryProblemError: The snapshot does not have the shard, or the store has several entries
            per key.
    """
    # A plain tuple is equal to its `Shard`, and made faster.
    if (store.group, partition) not in shown.shards:
        _checked_prefix(shown, store, partition)  # raises
    prefix = store.point_prefixes.get(partition)
    if prefix is None:
        prefix = _point_prefix(shown, store, partition)
    data = shown.view.get(prefix + key)
    if data is None:
        return None
    return data[HEADER_SIZE:], unpack_header(data)[0] if store.has_timestamps else None


def read_rows(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    operation: Operation,
    after: bytes | None = None,
) -> Iterator[Row]:
    """Return the rows of one partition that an operation asks for, in its order.

    The read resumes behind the position ``after``.

    Raises:
        QueryProblemError: The snapshot does not have the shard, or the store is of another kind.
    """
    _checked_prefix(shown, store, partition)
    types, wanted, read = _READS[type(operation)]
    if not isinstance(store.type, types):
        raise _wrong_kind(store, wanted)
    has_time = isinstance(operation, GetKey) and operation.as_of is not None
    if has_time and not store.type.is_versioned:
        raise _wrong_kind(store, "versions")
    return read(shown, store, partition, operation, after)


def is_sorted(
    shown: ShownSnapshot, store: QueryableStore, partition: int, operation: Operation
) -> bool:
    """Return whether the rows of a read are sorted in memory: to resume it sorts all of them."""
    if not isinstance(operation, FetchWindows | FetchSessions):
        return False
    is_one_window_key = isinstance(operation, FetchWindows) and key_of(operation) is not None
    return not is_one_window_key and open_store(shown, store, partition, raw=True).order is not None


def read_batches(
    shown: ShownSnapshot, store: QueryableStore, partition: int, operation: Operation
) -> Iterator[RowBatch]:
    """Return the same rows in batches, which have no object per row if they come from a scan.

    Raises:
        QueryProblemError: The snapshot does not have the shard, or the store is of another kind.
    """
    rows = read_rows(shown, store, partition, operation)
    if isinstance(operation, ScanKeys):
        prefix = _checked_prefix(shown, store, partition)
        return scan_batches(shown.view, store, prefix, operation)
    return batches_of(rows)


def count_entries(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Return how many entries a partition of a key-value store has.

    To count means to scan, because a write does not say whether its key is new. So the count is
    kept until the partition changes. That of a large partition is kept for ten times as long as
    the scan took, even if it changes: it is a little out of date then.

    Raises:
        QueryProblemError: The snapshot does not have the shard.
    """
    prefix = _checked_prefix(shown, store, partition)
    record = shown.record
    history, end = record.history, record.ends[store.changelog][partition]
    began = clock()
    known = store.counts.get(partition)
    if (
        known is not None
        and known.history == history
        and (known.end == end or began < known.reused_until)
    ):
        return known.entries
    count = sum(map(len, scan_batches(shown.view, store, prefix, ScanKeys())))
    ended = clock()
    reused_until = ended + 10 * (ended - began) if count > LARGE_PARTITION else ended
    store.counts[partition] = EntryCount(history, end, count, reused_until)
    return count


def changed_rows(
    shown: ShownSnapshot, store: QueryableStore, partition: int, after: bytes | None = None
) -> Iterator[tuple[ChangedKey, Row | None]]:
    """Return the keys that a snapshot has changed, in the order of their positions, with their row.

    The row is None if the entry was deleted, or has expired.

    The read resumes behind the position ``after``.

    Raises:
        QueryProblemError: The snapshot does not have the shard.
    """
    prefix = _checked_prefix(shown, store, partition)
    changed = shown.changed_keys(
        TopicPartition(store.changelog, partition), None if after is None else prefix + after
    )
    positions = (key[len(prefix) :] for key in changed)
    if isinstance(store.type, WindowType | SessionType):
        return _changed_windows(shown, store, partition, positions)
    return _changed_keys(shown, store, partition, positions)


def _checked_prefix(shown: ShownSnapshot, store: QueryableStore, partition: int) -> bytes:
    """Return the prefix of the entries of a partition that the snapshot has."""
    if Shard(store.group, partition) not in shown.shards:
        msg = (
            f"Snapshot {shown.record.snapshot} of this instance does not have partition "
            f"{partition} of store {store.name!r}. Ask another instance, or ask again soon."
        )
        raise QueryProblemError(ProblemCode.STORE_NOT_READY, msg, retry_after_ms=1_000)
    prefix = store.prefixes.get(partition)
    if prefix is None:
        prefix = store.prefixes[partition] = entry_prefix(
            TopicPartition(store.changelog, partition)
        )
    return prefix


def _point_prefix(shown: ShownSnapshot, store: QueryableStore, partition: int) -> bytes:
    """Return what the database keys begin with under which a store has one entry per key."""
    prefix = _checked_prefix(shown, store, partition)
    if store.type.has_segments:
        if store.type.replaces:
            raise _wrong_kind(store, "one value per key")
        prefix = segment_prefix(prefix, LATEST_SEGMENT)
    store.point_prefixes[partition] = prefix
    return prefix


def _wrong_kind(store: QueryableStore, wanted: str) -> QueryProblemError:
    kind = kind_in_words(store.builder)
    msg = f"Store {store.name!r} is a {kind} store, which does not have {wanted}."
    return QueryProblemError(ProblemCode.WRONG_STORE_KIND, msg)


def _get_key(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    operation: GetKey,
    after: bytes | None,
) -> Iterator[Row]:
    key = operation.key
    if after is not None:
        return
    if operation.as_of is None:
        found = get_entry(shown, store, partition, key)
        if found is not None:
            since = found[1] if store.type.is_versioned else None
            yield Row(key, *found, since, None, key)
        return
    versions: Versioned[bytes, bytes] = open_store(shown, store, partition, raw=True)
    version = versions.version_at(key, operation.as_of)
    if version is not None:
        value, since, until = version
        yield Row(key, value, since, since, until, key)


def _scan_keys(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    operation: ScanKeys,
    after: bytes | None,
) -> Iterator[Row]:
    prefix = _checked_prefix(shown, store, partition)
    batches = scan_batches(shown.view, store, prefix, operation, after)
    return chain.from_iterable(batch.rows() for batch in batches)


def _fetch_windows(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    operation: FetchWindows,
    after: bytes | None,
) -> Iterator[Row]:
    reverse = operation.descending
    times = operation.time_from, operation.time_to

    one_key = key_of(operation)

    def entries(windows: Any) -> Iterator[Entry]:
        if one_key is not None:
            found: Iterator[Entry] = windows.entries_of_key(one_key, *times, reverse=reverse)
        else:
            keys = operation.key, operation.end_key
            found = windows.entries_of_keys(keys, *times, reverse=reverse)
        return found

    is_one_key = one_key is not None
    return _window_rows(
        shown, store, partition, entries, after, reverse=reverse, is_one_key=is_one_key
    )


def _fetch_sessions(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    operation: FetchSessions,
    after: bytes | None,
) -> Iterator[Row]:
    reverse, latest_start = operation.descending, operation.latest_start
    one_key = key_of(operation)

    def entries(sessions: Any) -> Iterator[Entry]:
        keys = operation.key, operation.end_key
        if one_key is not None:
            found = sessions.entries_of_key(
                one_key, operation.earliest_end, MAX_MS, reverse=reverse
            )
        else:
            found = sessions.entries_of_keys(keys, operation.earliest_end, MAX_MS, reverse=reverse)
        touching = (entry for entry in found if entry[0][2] <= latest_start)
        order = sessions.order
        if order is None:
            return touching
        return iter(sorted(touching, key=lambda entry: order(entry[0]), reverse=reverse))

    return _window_rows(shown, store, partition, entries, after, reverse=reverse, is_one_key=False)


def _window_rows(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    entries: Callable[[Any], Iterator[Entry]],
    after: bytes | None,
    *,
    reverse: bool,
    is_one_key: bool,
) -> Iterator[Row]:
    """Yield the rows of windows or sessions; ``entries`` reads them of a store."""
    windows = open_store(shown, store, partition, raw=True)
    order = None if is_one_key else windows.order
    if after is None:
        found = entries(windows)
    elif order is None:
        found = entries(open_store(shown, store, partition, raw=True, after=after))
    else:
        found = dropwhile(_is_up_to(after, order, reverse=reverse), entries(windows))
    for entry_key, stored in found:
        yield _window_row(store, windows, entry_key, stored)


def _is_up_to(
    after: bytes, order: Callable[[EntryKey], EntryKey], *, reverse: bool
) -> Callable[[Entry], bool]:
    """Return whether an entry comes before the row at a position, or is that row."""
    try:
        last = order(from_sorted_key(after[_NUMBER_BYTES:]))
    except (ValueError, IndexError, struct.error) as error:
        msg = "The cursor cannot be read. Copy `next` of the page before, or begin without one."
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg) from error
    if reverse:
        return lambda entry: order(entry[0]) >= last
    return lambda entry: order(entry[0]) <= last


def _window_row(store: QueryableStore, windows: Any, entry_key: EntryKey, stored: Any) -> Row:
    windowed = windows.windowed(entry_key)
    window = windowed.window
    value, timestamp = stored if store.type.has_timestamps else (stored, None)
    position = segment_prefix(b"", store.type.segment(entry_key)) + sorted_key(entry_key)
    return Row(windowed.key, value, timestamp, window.start, window.end, position)


def _fetch_versions(
    shown: ShownSnapshot,
    store: QueryableStore,
    partition: int,
    operation: FetchVersions,
    after: bytes | None,
) -> Iterator[Row]:
    versions: Versioned[bytes, bytes] = open_store(shown, store, partition, raw=True)
    key = operation.key
    found = [*versions.versions(key, operation.time_from, operation.time_to)]
    if operation.ascending:
        found.reverse()
    for value, since, until in found:
        position = (since + _SIGNED).to_bytes(_NUMBER_BYTES, "big")
        if after is None or (position > after if operation.ascending else position < after):
            yield Row(key, value, since, since, until, position)


def _changed_windows(
    shown: ShownSnapshot, store: QueryableStore, partition: int, positions: Iterator[bytes]
) -> Iterator[tuple[ChangedKey, Row | None]]:
    windows = open_store(shown, store, partition, raw=True)
    for position in positions:
        entry_key = from_sorted_key(position[_NUMBER_BYTES:])
        stored = windows.stored_at(entry_key)
        windowed = windows.windowed(entry_key)
        window = windowed.window
        row = None if stored is None else _window_row(store, windows, entry_key, stored)
        yield ChangedKey(windowed.key, window.start, window.end, position), row


def _changed_keys(
    shown: ShownSnapshot, store: QueryableStore, partition: int, positions: Iterator[bytes]
) -> Iterator[tuple[ChangedKey, Row | None]]:
    is_versioned = store.type.is_versioned
    for position in positions:
        key = position
        if is_versioned:
            assert segment_number(position) == LATEST_SEGMENT, "changed keys have no history"
            key = position[_NUMBER_BYTES:]
        found = get_entry(shown, store, partition, key)
        row = None
        if found is not None:
            row = Row(key, *found, found[1] if is_versioned else None, None, key)
        yield ChangedKey(key, None, None, position), row


_READS: dict[type[Operation], tuple[tuple[type, ...], str, Callable[..., Iterator[Row]]]] = {
    GetKey: ((KeyValueType, VersionedType), "one value per key", _get_key),
    ScanKeys: ((KeyValueType, VersionedType), "one value per key", _scan_keys),
    FetchWindows: ((WindowType,), "windows", _fetch_windows),
    FetchSessions: ((SessionType,), "sessions", _fetch_sessions),
    FetchVersions: ((VersionedType,), "versions", _fetch_versions),
}
"""By operation the types of stores that have it, what they have, and how it is read."""
