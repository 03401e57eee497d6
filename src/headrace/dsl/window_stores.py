"""The stores of windowed aggregations, and the serdes of their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.dsl.handles import MakeStore, is_persistent
from headrace.dsl.options import Materialized
from headrace.errors import TopologyError
from headrace.serdes.slots import SerdeSlot
from headrace.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import StoreKind
from headrace.windows.join_windows import JoinWindows
from headrace.windows.session_windows import SessionWindows
from headrace.windows.sliding_windows import SlidingWindows
from headrace.windows.time_windows import TimeWindows
from headrace.windows.unlimited_windows import UnlimitedWindows

TimeLikeWindows: TypeAlias = TimeWindows | UnlimitedWindows | SlidingWindows
"""Windows of one size."""


def checked_windows(windows: TimeLikeWindows) -> TimeLikeWindows:
    """Return the windows, if they are of a kind that an aggregation accepts.

    Raises:
        TopologyError: They are something else.
    """
    if not isinstance(windows, TimeWindows | UnlimitedWindows | SlidingWindows):
        msg = (
            f"`windowed_by` was given {windows!r}. Use TimeWindows, SlidingWindows, "
            "SessionWindows or UnlimitedWindows."
        )
        raise TopologyError(msg)
    refuse_overrides(windows)
    return windows


def refuse_overrides(windows: TimeLikeWindows | SessionWindows | JoinWindows) -> None:
    """Refuse windows of a subclass that replaces a method: operations compute windows themselves.

    Raises:
        TopologyError: The class overrides a method or a property.
    """
    classes = type(windows).__mro__
    base = next(class_ for class_ in classes if class_.__module__.startswith("headrace.windows."))
    for class_ in classes[: classes.index(base)]:
        for name in vars(class_):
            if hasattr(base, name) and not name.startswith("_"):
                msg = (
                    f"{class_.__name__} overrides `{name}` of {base.__name__}, and Headrace cannot "
                    f"run windows of your own. Use {base.__name__} itself, or a Processor with a "
                    "store of `Stores.window`."
                )
                raise TopologyError(msg)


def window_store(windows: TimeLikeWindows, *, on_close: bool = False) -> MakeStore:
    """Return a function that returns the store of an aggregation in windows of one size."""
    # As in Kafka: sliding windows that emit when they close have no cache.
    may_cache = not (on_close and isinstance(windows, SlidingWindows))

    return _store_maker(
        "timestamped_window", windows, windows.size_ms, may_cache=may_cache, on_close=on_close
    )


def session_store(windows: SessionWindows, *, on_close: bool = False) -> MakeStore:
    """Return a function that returns the store of an aggregation in sessions."""
    return _store_maker("session", windows, 0, may_cache=not on_close, on_close=on_close)


def _store_maker(
    kind: StoreKind,
    windows: TimeLikeWindows | SessionWindows,
    size_ms: int,
    *,
    may_cache: bool,
    on_close: bool,
) -> MakeStore:
    def make(
        name: str, materialized: Materialized, key: SerdeSlot, value: SerdeSlot
    ) -> StoreBuilder[Any]:
        return StoreBuilder(
            name=name,
            kind=kind,
            key=key,
            value=value,
            persistent=is_persistent(materialized),
            caching=materialized.caching and may_cache,
            logging=materialized.logging,
            retention_ms=_retention(name, materialized, windows),
            size_ms=size_ms,
            time_first=on_close,
            generated_name=materialized.name is None,
        )

    return make


def time_windowed(windows: TimeLikeWindows) -> Callable[[SerdeSlot], SerdeSlot]:
    """Return a function that returns the slot of windowed keys: ``f(slot of inner keys)``."""
    # Kafka too accepts a sliding difference of 0 here, and fails at the first record.
    size_ms = max(1, windows.size_ms)
    return lambda key: key.wrapped(lambda serde: TimeWindowedSerde(serde, size_ms))


def session_windowed(key: SerdeSlot) -> SerdeSlot:
    """Return the slot of the keys of sessions, whose inner keys have the slot ``key``."""
    return key.wrapped(SessionWindowedSerde)


def _retention(
    name: str, materialized: Materialized, windows: TimeLikeWindows | SessionWindows
) -> int:
    """Return how long the store keeps a window.

    Raises:
        TopologyError: The retention is shorter than the time that windows accept records.
    """
    if materialized.history_retention_ms is not None:
        msg = (
            f"Store {name!r} was given `history_retention=`, which is for versioned tables. "
            "Use `retention=` for windows and sessions."
        )
        raise TopologyError(msg)
    if materialized.retention_ms is None:
        return windows.retention_ms
    if materialized.retention_ms < windows.retention_ms:
        msg = (
            f"`retention` of store {name!r} is {materialized.retention_ms} ms, but {windows} need "
            f"{windows.retention_ms} ms. Make it at least as long, or leave it out."
        )
        raise TopologyError(msg)
    return materialized.retention_ms
