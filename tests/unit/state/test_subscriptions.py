"""The subscriptions of a foreign-key join."""

from __future__ import annotations

from headrace import Serdes
from headrace.state.maps import MemoryMap
from headrace.state.subscriptions import Subscriptions


def new_subscriptions() -> Subscriptions[bytes, str]:
    return Subscriptions("subscriptions", Serdes.bytes(), Serdes.string(), MemoryMap())


def test_subscribers_come_in_the_order_of_their_key_bytes() -> None:
    store = new_subscriptions()

    for number, key in enumerate(("c", "a", "b", "aa")):
        store.put(b"x", key, b"digest", number)

    assert list(store.subscribers(b"x")) == [
        ("a", b"digest", 1),
        ("aa", b"digest", 3),
        ("b", b"digest", 2),
        ("c", b"digest", 0),
    ]


def test_only_the_rows_of_exactly_that_foreign_key_are_found() -> None:
    store = new_subscriptions()

    for foreign_key in (b"", b"x", b"x\0", b"x\0\0", b"xx", b"w\xff", b"\xff", b"\xff\xff"):
        store.put(foreign_key, repr(foreign_key), b"d", 0)

    for foreign_key in (b"", b"x", b"x\0", b"x\0\0", b"xx", b"w\xff", b"\xff", b"\xff\xff"):
        assert [key for key, _, _ in store.subscribers(foreign_key)] == [repr(foreign_key)]


def test_a_row_that_subscribes_again_is_found_once() -> None:
    store = new_subscriptions()

    store.put(b"x", "a", b"one", 0)
    store.put(b"x", "a", b"two", 0)

    assert list(store.subscribers(b"x")) == [("a", b"two", 0)]


def test_a_row_that_was_removed_is_not_found() -> None:
    store = new_subscriptions()
    store.put(b"x", "a", b"d", 0)

    store.remove(b"x", "a")
    store.remove(b"x", "never there")

    assert list(store.subscribers(b"x")) == []
