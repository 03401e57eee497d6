"""Windowed keys in Kafka's layouts."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import TopologyError
from headrace.serdes import (
    LongSerde,
    Serde,
    Serdes,
    SessionWindowedSerde,
    StringSerde,
    TimeWindowedSerde,
)
from headrace.windows.window import Window, Windowed

BY_TIME = TimeWindowedSerde(StringSerde(), 10)
BY_SESSION = SessionWindowedSerde(StringSerde())
BOTH = pytest.mark.parametrize("serde", [BY_TIME, BY_SESSION])

UNLIMITED = 2**63 - 1


def test_a_key_of_a_time_window_is_followed_by_the_start() -> None:
    windowed = Windowed("a", Window(5, 15))

    assert BY_TIME.serialize(windowed).hex() == "610000000000000005"
    assert BY_TIME.deserialize(bytes.fromhex("610000000000000005")) == windowed


def test_a_key_of_a_session_is_followed_by_the_end_and_the_start() -> None:
    windowed = Windowed("a", Window(5, 15))

    assert BY_SESSION.serialize(windowed).hex() == "61000000000000000f0000000000000005"
    assert BY_SESSION.deserialize(BY_SESSION.serialize(windowed)) == windowed


@BOTH
def test_the_key_may_be_empty(serde: Serde[Windowed[str]]) -> None:
    windowed = Windowed("", Window(5, 15))

    assert serde.deserialize(serde.serialize(windowed)) == windowed


@pytest.mark.parametrize("size", [10, UNLIMITED])
def test_a_window_ends_at_the_latest_where_time_does(size: int) -> None:
    serde = TimeWindowedSerde(LongSerde(), size)

    read = serde.deserialize(serde.serialize(Windowed(1, Window(UNLIMITED - 1, UNLIMITED))))

    assert read == Windowed(1, Window(UNLIMITED - 1, UNLIMITED))


def test_a_window_may_be_one_millisecond_long() -> None:
    serde = TimeWindowedSerde(StringSerde(), 1)

    assert serde.deserialize(bytes(8)) == Windowed("", Window(0, 1))


@pytest.mark.parametrize("size", [0, -5])
def test_windows_have_a_size(size: int) -> None:
    with pytest.raises(TopologyError, match=f"A window of {size} ms is empty"):
        TimeWindowedSerde(StringSerde(), size)


@BOTH
def test_a_key_without_window_is_refused(serde: Serde[Any]) -> None:
    with pytest.raises(TypeError, match="WindowedSerde writes Windowed, but got str"):
        serde.serialize("a")


@BOTH
def test_data_too_short_for_a_window_is_refused(serde: Serde[Any]) -> None:
    with pytest.raises(ValueError, match="reads a key and its window, but got 7 bytes"):
        serde.deserialize(bytes(7))


@pytest.mark.parametrize(
    ("serde", "data"),
    [(BY_TIME, "61ffffffffffffffff"), (BY_SESSION, "6100000000000000010000000000000002")],
)
def test_data_with_an_impossible_window_is_refused(serde: Serde[Any], data: str) -> None:
    with pytest.raises(ValueError, match="is impossible"):
        serde.deserialize(bytes.fromhex(data))


@pytest.mark.parametrize("serde", [BY_TIME, BY_SESSION])
def test_the_inner_key_can_be_had_without_its_window(
    serde: TimeWindowedSerde[str] | SessionWindowedSerde[str],
) -> None:
    data = serde.serialize(Windowed("ann", Window(5, 15)))

    assert serde.base_key(data) == b"ann"
    assert serde.inner == StringSerde()


@pytest.mark.parametrize("serde", [BY_TIME, BY_SESSION])
def test_the_inner_serde_is_bound_to_the_topic(
    serde: TimeWindowedSerde[str] | SessionWindowedSerde[str],
) -> None:
    class Bound(StringSerde):
        def for_topic(self, topic: str, *, is_key: bool) -> Serde[str]:
            return Serdes.of(lambda value: f"{topic} {is_key} {value}".encode(), bytes.decode)

    kind = type(serde)
    unbound: Any = TimeWindowedSerde(Bound(), 10) if kind is TimeWindowedSerde else kind(Bound())  # type: ignore[call-arg]  # sessions have no size
    bound = unbound.for_topic("orders", is_key=True)

    assert type(bound) is kind
    assert bound.base_key(bound.serialize(Windowed("a", Window(0, 10)))) == b"orders True a"


def test_serdes_of_other_sizes_or_keys_are_not_equal() -> None:
    assert TimeWindowedSerde(StringSerde(), 10) == BY_TIME
    assert TimeWindowedSerde(StringSerde(), 11) != BY_TIME
    other_key: Serde[Any] = TimeWindowedSerde(LongSerde(), 10)
    assert other_key != BY_TIME
    assert SessionWindowedSerde(StringSerde()) == BY_SESSION
