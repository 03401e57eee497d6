"""The builders of stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import TopologyError
from headrace.serdes import LongSerde, Serdes, StringSerde
from headrace.serdes.base import Serde
from headrace.serdes.slots import Fill, SerdeSlot
from headrace.state.specs import StoreBuilder, Stores


def filling(key: Serde[Any], value: Serde[Any]) -> Fill:
    return lambda slot: slot.resolved(key if slot.part == "key" else value)


def test_a_store_knows_its_name_kind_and_serdes() -> None:
    store = Stores.key_value("s", str, int, persistent=False, caching=True, logging=False)

    assert (store.name, store.kind) == ("s", "key_value")
    assert (store.key.need, store.value.need) == (StringSerde(), LongSerde())
    assert (store.persistent, store.caching, store.logging) == (False, True, False)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (Stores.timestamped_key_value("s", str, int), "timestamped_key_value"),
        (Stores.window("s", str, int, retention="1m", size="1s"), "window"),
        (Stores.timestamped_window("s", str, int, retention=5, size=5), "timestamped_window"),
        (Stores.session("s", str, int, retention="1m"), "session"),
        (Stores.versioned_key_value("s", str, int, history_retention=9), "versioned_key_value"),
        (Stores.lru_map("s", str, int, capacity=3), "lru_map"),
    ],
)
def test_every_factory_makes_its_kind(made: StoreBuilder[Any], kind: str) -> None:
    assert made.kind == kind


def test_lengths_are_kept_in_milliseconds() -> None:
    window = Stores.window("s", str, int, retention="1m", size="1s", retain_duplicates=True)

    assert (window.retention_ms, window.size_ms, window.retain_duplicates) == (60_000, 1_000, True)
    assert Stores.key_value("s", str, int, ttl="2s").ttl_ms == 2_000
    assert Stores.lru_map("s", str, int, capacity=3).capacity == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Stores.window("s", str, int, retention=4, size=5),
            "`retention` of store 's' (4 ms) is shorter than its windows (5 ms). "
            "Make it at least as long.",
        ),
        (
            lambda: Stores.session("s", str, int, retention=-1),
            "`retention` of store 's' is negative (-1 ms). Use zero or more.",
        ),
        (
            lambda: Stores.key_value("s", str, int, ttl=0),
            "`ttl` of store 's' is 0 ms. Use one millisecond or more.",
        ),
        (
            lambda: Stores.key_value("a b", str, int),
            "The name 'a b' of a store has other characters. "
            "Use 1 to 249 letters, digits, '.', '_' or '-'.",
        ),
    ],
)
def test_a_store_that_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        make()

    assert str(caught.value) == message


def test_an_lru_map_needs_room() -> None:
    with pytest.raises(TopologyError, match="`capacity` of store 's'"):
        Stores.lru_map("s", str, int, capacity=-1)


def test_the_application_fills_in_what_a_store_leaves_open() -> None:
    store: StoreBuilder[Any] = StoreBuilder(
        name="s", kind="key_value", key=SerdeSlot("key"), value=SerdeSlot("value"), persistent=None
    )

    resolved = store.resolved(filling(Serdes.string(), Serdes.long()), persistent=False)

    assert (resolved.key.need, resolved.value.need) == (StringSerde(), LongSerde())
    assert resolved.persistent is False


def test_a_store_keeps_what_it_says_itself() -> None:
    store = Stores.key_value("s", str, int)

    resolved = store.resolved(filling(Serdes.bytes(), Serdes.bytes()), persistent=False)

    assert resolved == store
