"""Opening stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.engine.read_only import ReadOnlyStore
from headrace.errors import StateStoreError
from headrace.state.maps import MemoryStores
from headrace.state.specs import StoreBuilder, Stores
from headrace.state.store_types.base import Opening
from headrace.state.store_types.lookup import type_of
from headrace.testing import MockProcessorContext

CONTEXT: Any = MockProcessorContext()


def opened(spec: StoreBuilder[Any], data: MemoryStores) -> Any:
    store_type = type_of(spec)
    return store_type.open(Opening(data, CONTEXT, store_type.times()))


def test_the_entries_of_a_store_outlive_it() -> None:
    data, spec = MemoryStores(), Stores.key_value("s", str, int)
    opened(spec, data).put("a", 1)

    assert opened(spec, data).get("a") == 1


def test_segments_belong_to_their_store() -> None:
    data, spec = MemoryStores(), Stores.session("s", str, int, retention=5)

    assert data.segments(spec) is data.segments(spec)


def test_an_unknown_kind_of_store_is_an_error() -> None:
    kind: Any = "tree"
    spec = replace(Stores.key_value("s", str, int), kind=kind)

    with pytest.raises(StateStoreError, match="'s' is a 'tree' store, which this engine cannot"):
        type_of(spec)


@pytest.mark.parametrize("method", ["put", "put_if_absent", "put_all", "delete"])
def test_a_read_only_store_refuses_to_be_written(method: str) -> None:
    store = opened(Stores.key_value("s", str, int), MemoryStores())
    store.put("a", 1)
    shown = ReadOnlyStore(store)

    with pytest.raises(StateStoreError, match="Global store 's' can only be read here"):
        getattr(shown, method)
    assert (shown.get("a"), list(shown.all())) == (1, [("a", 1)])
