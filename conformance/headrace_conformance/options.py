"""Windows, materialisation, suppression and timestamp extractors as scenarios write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import (
    ConsumerRecord,
    FailOnInvalidTimestamp,
    JoinWindows,
    LogAndSkipOnInvalidTimestamp,
    Materialized,
    SessionWindows,
    SlidingWindows,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from headrace_conformance.serdes import serde
from headrace_conformance.values import as_object, long_of

LONGEST = 2**63 - 1
"""The size of an unlimited window, ``Long.MAX_VALUE``."""


def windows_of(window: Mapping[str, Any]) -> tuple[Any, int]:
    """Return the windows of ``windowed_by`` and their size (0 for sessions)."""
    grace = window.get("grace", 0)
    match window["type"]:
        case "tumbling":
            return TimeWindows(window["size"], grace=grace), window["size"]
        case "hopping":
            hopping = TimeWindows(window["size"], advance=window["advance"], grace=grace)
            return hopping, window["size"]
        case "sliding":
            return SlidingWindows(window["difference"], grace=grace), window["difference"]
        case "session":
            return SessionWindows(window["gap"], grace=grace), 0
        case "unlimited":
            return UnlimitedWindows(window.get("start", 0)), LONGEST
    msg = f"There are no windows {window['type']!r}."
    raise ValueError(msg)


def join_windows_of(window: Mapping[str, Any]) -> JoinWindows:
    """Return the windows of a join of two streams."""
    grace = window.get("grace", 0)
    if "difference" in window:
        return JoinWindows(window["difference"], grace=grace)
    return JoinWindows(before=window["before"], after=window["after"], grace=grace)


def materialized_of(
    operation: Mapping[str, Any], key: str, value: str, *, always: bool = False
) -> Materialized | None:
    """Return how the operation asks for its store.

    Args:
        operation: With ``store`` and ``materialized``, or without.
        key: Name of the serde of the keys.
        value: Name of the serde of the values.
        always: Whether the operation has a store anyway, so that its serdes must be said.
    """
    options = operation.get("materialized", {})
    if not (always or "materialized" in operation or "store" in operation):
        return None
    given = {
        keyword: options[name]
        for name, keyword in (
            ("caching", "caching"),
            ("logging", "logging"),
            ("retention", "retention"),
            ("versioned", "history_retention"),
        )
        if name in options
    }
    if "in_memory" in options:
        given["store_type"] = "in_memory" if options["in_memory"] else "rocksdb"
    return Materialized(operation.get("store"), key=serde(key), value=serde(value), **given)


def suppressed_of(operation: Mapping[str, Any]) -> Suppressed:
    """Return what ``suppress`` waits for."""
    buffer = operation.get("buffer", "unbounded")
    limits: dict[str, Any] = {} if buffer == "unbounded" else dict(buffer)
    full = limits.pop("full", None)
    if "named" in operation:
        limits["name"] = operation["named"]
    if "time_limit" not in operation:
        return Suppressed.until_window_closes(**limits)
    if full is not None:
        limits["when_full"] = full
    return Suppressed.until_time_limit(operation["time_limit"], **limits)


def extractor_of(source: str | None) -> Any:
    """Return the timestamp extractor called ``source``, or None for the default."""
    match (source or "").partition(":"):
        case ("", *_):
            return None
        case ("fail_on_invalid", *_):
            return FailOnInvalidTimestamp()
        case ("log_and_skip", *_):
            return LogAndSkipOnInvalidTimestamp()
        case ("use_partition_time", *_):
            return UsePartitionTimeOnInvalidTimestamp()
        case ("wall_clock", *_):
            return WallclockTimestampExtractor()
        case ("field", _, name):
            return lambda record, partition_time: _field(record, name, partition_time)
        case ("value", *_):
            return lambda record, _partition_time: long_of(record.value)
        case ("partition_time_plus_one", *_):
            return lambda _record, partition_time: partition_time + 1
    msg = f"There is no timestamp extractor {source!r}."
    raise ValueError(msg)


def _field(record: ConsumerRecord, name: str, partition_time: int) -> int:
    return partition_time if record.value is None else long_of(as_object(record.value)[name])
