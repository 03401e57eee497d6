"""Judges what an application wrote by what the oracle expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

from chaos.contract import (
    EXACTLY_ONCE,
    Expected,
    Lane,
    Lanes,
    Log,
    Logged,
    Offsets,
    Stores,
    Workload,
)
from chaos.oracle import decoded, identity_of, ids_in

_SHOWN = 20
"""How many examples a verdict keeps."""

_SEQUENCE_BYTES = 4
"""The suffix of a key in a window store's changelog, after the start of the window."""


@dataclass
class Verdict:
    """The number of times that each promise was broken; all zero is right."""

    lost: int = 0
    """Results that are missing."""
    doubled: int = 0
    """Results that are there more often than they should be."""
    unexplained: int = 0
    """Results that no input gives."""
    wrong_order: int = 0
    """Results that come after one they should come before."""
    wrong_state: int = 0
    """Results that show another state than they should, and keys whose state is another."""
    wrong_changelog: int = 0
    """Keys for which the changelog and the oracle differ."""
    torn: int = 0
    """Batches of a task of which a reader could see a part."""
    offsets_ahead: int = 0
    """Input records that count as read, but are in no result."""
    unread: int = 0
    """Input records that do not count as read."""
    went_back: int = 0
    """Committed offsets that were smaller than before."""
    miscounted: int = 0
    """Dropped records that were not counted, or counted for another reason."""
    repeated: int = 0
    """Results that a replayed batch wrote again; right where at least once is promised."""
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Return whether nothing was found."""
        return not any(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Return how often each promise was broken."""
        names = [each.name for each in fields(self) if each.type == "int"]
        return {name: getattr(self, name) for name in names if name != "repeated"}

    def add(self, kind: str, example: str, count: int = 1) -> None:
        """Count something that should not be."""
        if count:
            setattr(self, kind, getattr(self, kind) + count)
            if len(self.examples) < _SHOWN:
                self.examples.append(f"{kind}: {example}")


def verdict(
    workload: Workload,
    inputs: Log,
    outputs: Log,
    changelogs: Log | None = None,
    committed: Offsets | None = None,
    markers: Offsets | None = None,
    guarantee: str = EXACTLY_ONCE,
    stores: Stores | None = None,
    dropped: dict[str, int] | None = None,
) -> Verdict:
    """Return what is wrong with a finished round.

    Args:
        workload: The workload that ran.
        inputs: All of its input topics.
        outputs: All of its output topics.
        changelogs: The changelog topics by the names of their stores; None leaves them out.
        committed: The offsets of the application's group; None leaves them out.
        markers: The offsets of the group of its markers; None leaves them out.
        guarantee: Its guarantee; at least once, a batch may be there again, or in parts.
        stores: The contents of its state; None leaves them out.
        dropped: How many records it counted as dropped, by reason; None leaves them out.
    """
    found = Verdict()
    in_transactions = guarantee == EXACTLY_ONCE
    if not in_transactions:
        outputs, found.repeated = without_replays(outputs)
    expected, observed = workload.expected(inputs), workload.observed(outputs)
    _compare_lanes(found, expected, observed)
    if in_transactions:
        _find_torn(found, workload, outputs, changelogs or {})
    if changelogs is not None:
        for store, contents in expected.stores.items():
            kept = _folded(changelogs.get(store, {}))
            _compare_store(found, "wrong_changelog", store, contents, kept)
    if stores is not None:
        for store, contents in expected.stores.items():
            _compare_store(found, "wrong_state", store, contents, stores.get(store, {}))
    if dropped is not None and expected.dropped is not None:
        _compare_counts(found, expected.dropped, dropped)
    if committed is not None:
        _compare_offsets(found, workload, inputs, outputs, committed)
    if in_transactions and markers is not None and observed and not markers:
        found.add("torn", "there are outputs, but no marker was written with them")
    return found


def stamp_of(record: Logged) -> bytes | None:
    """Return the task and the batch that a record says it belongs to."""
    return next((value for name, value in record.headers if name == "batch"), None)


def all_records(log: Log) -> Iterator[Logged]:
    """Return the records of a log, by topic, partition and offset."""
    for partitions in log.values():
        for records in partitions.values():
            yield from records


def without_replays(outputs: Log) -> tuple[Log, int]:
    """Return outputs without what replayed batches wrote again, and how many records that was.

    A batch is replayed before the next one of its task begins, so later repetitions stay.
    """
    kept: Log = {}
    repeated = 0
    for topic, partitions in outputs.items():
        for partition, records in partitions.items():
            first = [*_first_written(records)]
            kept.setdefault(topic, {})[partition] = first
            repeated += len(records) - len(first)
    return kept, repeated


def _first_written(records: list[Logged]) -> Iterator[Logged]:
    newest: dict[bytes, int] = {}
    written: set[Logged] = set()
    for record in records:
        task, _, number = (stamp_of(record) or b"").partition(b"/")
        batch = int(number or 0)
        newest[task] = max(batch, newest.get(task, 0))
        same = record._replace(offset=0, unit=0)
        if batch < newest[task] or same not in written:
            yield record
        written.add(same)


def _compare_lanes(found: Verdict, expected: Expected, observed: Lanes) -> None:
    for lane in sorted({*expected.lanes, *observed} - {*expected.possible}, key=repr):
        _compare_lane(found, lane, expected.lanes.get(lane, []), observed.get(lane, []))
    for lane, ranks in expected.possible.items():
        _compare_possible(found, lane, ranks, observed.get(lane, []))


def _compare_lane(
    found: Verdict, lane: Lane, expected: list[tuple[Any, Any]], observed: list[tuple[Any, Any]]
) -> None:
    wanted = Counter(identity for identity, _ in expected)
    there = Counter(identity for identity, _ in observed)
    for identity in {**wanted, **there}:
        too_many = there[identity] - wanted[identity]
        kind = "doubled" if wanted[identity] else "unexplained"
        found.add(kind, f"{identity!r} in {lane}", max(0, too_many))
        found.add("lost", f"{identity!r} in {lane}", max(0, -too_many))
    indexes = {identity: index for index, (identity, _) in enumerate(expected)}
    known = [identity for identity in dict(observed) if identity in indexes]
    _check_rising(found, lane, known, indexes)
    values = dict(expected)
    for identity, value in observed:
        if identity in values and value != values[identity]:
            example = f"{identity!r} in {lane} says {value!r}, not {values[identity]!r}"
            found.add("wrong_state", example)


def _compare_possible(
    found: Verdict, lane: Lane, ranks: dict[Any, Any], observed: list[tuple[Any, Any]]
) -> None:
    for identity, count in Counter(identity for identity, _ in observed).items():
        if identity not in ranks:
            found.add("unexplained", f"{identity!r} in {lane}", count)
        else:
            found.add("doubled", f"{identity!r} in {lane}", count - 1)
    _check_rising(found, lane, [each for each in dict(observed) if each in ranks], ranks)


def _check_rising(found: Verdict, lane: Lane, observed: list[Any], ranks: dict[Any, Any]) -> None:
    for before, after in pairwise(observed):
        if ranks[after] < ranks[before]:
            found.add("wrong_order", f"{after!r} after {before!r} in {lane}")


def _find_torn(found: Verdict, workload: Workload, outputs: Log, changelogs: Log) -> None:
    units: dict[bytes, set[int]] = {}
    for record in all_records(outputs):
        if (stamp := stamp_of(record)) is not None:
            units.setdefault(stamp, set()).add(record.unit)
    for stamp, change in _stamped_changes(workload, outputs, changelogs):
        units.setdefault(stamp, set()).add(change.unit)
    for batch, several in units.items():
        found.add("torn", f"{batch!r} came in {len(several)} parts", int(len(several) > 1))
    if workload.twins is not None:
        one, other = workload.twins
        for identity in ids_in(outputs, one) ^ ids_in(outputs, other):
            found.add("torn", f"{identity!r} is in one of {workload.twins} only")


def _stamped_changes(
    workload: Workload, outputs: Log, changelogs: Log
) -> Iterator[tuple[bytes, Logged]]:
    """Yield records of a changelog with the batch of the output that shows the same change.

    Changelogs have no headers. A change that came several times fits several outputs: left out.
    """
    if workload.shown is None:
        return
    store, topic = workload.shown
    shown = _by_content(outputs.get(topic, {}))
    for (key, value), changes in _by_content(changelogs.get(store, {})).items():
        content = shown_key(workload, key), value
        if len(changes) == len(shown.get(content, [])) == 1:
            stamp = stamp_of(shown[content][0])
            if stamp is not None:
                yield stamp, changes[0]


def shown_key(workload: Workload, key: bytes | None) -> bytes | None:
    """Return a key of the changelog that is shown, as the topic has it that shows it."""
    assert workload.shown is not None
    is_window = workload.stores[workload.shown[0]] == "window"
    return key[:-_SEQUENCE_BYTES] if is_window and key is not None else key


def _by_content(partitions: dict[int, list[Logged]]) -> dict[tuple[Any, Any], list[Logged]]:
    found: dict[tuple[Any, Any], list[Logged]] = {}
    for records in partitions.values():
        for record in records:
            found.setdefault((record.key, record.value), []).append(record)
    return found


def _folded(partitions: dict[int, list[Logged]]) -> dict[bytes, Any]:
    """Return what a changelog says of each key in the end."""
    folded: dict[bytes, Any] = {}
    for records in partitions.values():
        for record in records:
            assert record.key is not None
            folded.pop(record.key, None)
            if record.value is not None:
                folded[record.key] = decoded(record.value)
    return folded


def _compare_store(
    found: Verdict, kind: str, store: str, contents: dict[bytes, Any], kept: dict[bytes, Any]
) -> None:
    for key in [*contents, *(kept.keys() - contents.keys())]:
        if not _says(kept.get(key), contents.get(key)):
            example = f"{key!r} of {store!r} is {kept.get(key)!r}, not {contents.get(key)!r}"
            found.add(kind, example)


def _says(value: Any, expected: Any) -> bool:
    """Return whether a value has what is expected; it may have more, which timing decides."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return {name: value.get(name) for name in expected} == expected
    return bool(value == expected)


def _compare_counts(found: Verdict, expected: dict[str, int], dropped: dict[str, int]) -> None:
    for reason in sorted({*expected, *dropped}):
        wanted, counted = expected.get(reason, 0), dropped.get(reason, 0)
        example = f"{counted} records were dropped for {reason!r}, not {wanted}"
        found.add("miscounted", example, abs(wanted - counted))


def _compare_offsets(
    found: Verdict, workload: Workload, inputs: Log, outputs: Log, committed: Offsets
) -> None:
    read: list[Logged] = []
    for record in all_records(inputs):
        if record.offset < committed.get((record.topic, record.partition), 0):
            read.append(record)
        else:
            found.add("unread", f"{record.topic}-{record.partition} at {record.offset}")
    if workload.traced is not None:
        for identity in ids_of(read) - workload.traced(outputs):
            found.add("offsets_ahead", f"{identity!r} counts as read, but shows nowhere")


def ids_of(records: Iterable[Logged]) -> set[str]:
    """Return the ids of input records."""
    return {identity_of(record) for record in records if record.value is not None}
