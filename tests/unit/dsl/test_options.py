"""The options of the DSL that are values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.dsl.options import EmitStrategy, Materialized, Suppressed, materialized_of
from headrace.errors import TopologyError


def test_materialized_has_kafkas_defaults() -> None:
    stored = Materialized()

    assert (stored.name, stored.store_type, stored.caching, stored.logging) == (
        None,
        None,
        True,
        True,
    )
    assert (stored.retention_ms, stored.history_retention_ms) == (None, None)


def test_lengths_are_given_as_durations() -> None:
    assert Materialized("s", retention="1m").retention_ms == 60_000
    assert Materialized("s", history_retention="1s").history_retention_ms == 1_000
    assert Suppressed.until_time_limit("5s").limit_ms == 5_000


def test_the_options_are_values() -> None:
    assert Materialized("s", value=int) == Materialized("s", value=int)
    assert Materialized("s") != Materialized("t")
    assert EmitStrategy.on_window_close().on_close
    assert not EmitStrategy.on_window_update().on_close


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(None, Materialized()), ("s", Materialized("s")), (Materialized("s"), Materialized("s"))],
)
def test_materialized_takes_a_name_or_all_options(stored: Any, expected: Materialized) -> None:
    assert materialized_of(stored) == expected


def test_suppressing_until_a_window_closes_cannot_emit_early() -> None:
    suppressed = Suppressed.until_window_closes(max_records=5, max_bytes=100, name="final")

    assert (suppressed.until_close, suppressed.emits_early) == (True, False)
    assert (suppressed.max_records, suppressed.max_bytes, suppressed.name) == (5, 100, "final")


@pytest.mark.parametrize(("when_full", "early"), [("emit_early", True), ("shut_down", False)])
def test_a_time_limit_has_a_policy_for_a_full_buffer(when_full: Any, early: bool) -> None:
    suppressed = Suppressed.until_time_limit(1, when_full=when_full)

    assert (suppressed.until_close, suppressed.emits_early) == (False, early)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: materialized_of(7), "`materialized` is 7. Use the name of the store, or a"),  # type: ignore[arg-type]
        (lambda: Materialized(store_type="disk"), "`store_type` is 'disk'. Use \"rocksdb\""),  # type: ignore[arg-type]
        (
            lambda: Materialized(store_type="in_memory", history_retention=1),
            "A versioned table cannot be in memory only. Leave out `store_type`.",
        ),
        (lambda: Materialized("a b"), "The name 'a b' of a store has other characters"),
        (lambda: Materialized(retention=-1), "`retention` is negative (-1 ms)"),
        (lambda: Suppressed.until_time_limit(-1), "`limit` is negative (-1 ms)"),
        (
            lambda: Suppressed.until_time_limit(1, when_full="wait"),  # type: ignore[arg-type]
            '`when_full` is \'wait\'. Use "emit_early" or "shut_down".',
        ),
        (lambda: Suppressed.until_window_closes(max_records=-1), "`max_records` is -1"),
        (lambda: Suppressed.until_window_closes(max_bytes=-2), "`max_bytes` is -2"),
        (lambda: Suppressed.until_window_closes(name="a b"), "The name 'a b' of a step"),
    ],
)
def test_options_that_cannot_be_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        make()

    assert str(caught.value).startswith(message)
