"""Checks of suppliers while a topology is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace.errors import TopologyError
from headrace.processors.api import FixedKeyProcessor, Processor, ValueTransformerWithKey
from headrace.state.specs import StoreBuilder


class Supplied(NamedTuple):
    """The class that a supplier makes, and its stores."""

    type: type[Any]
    stores: tuple[StoreBuilder[Any], ...]
    """The stores that the class itself brings."""


def checked_supplier(
    supplier: Callable[[], Any], node: str, *, fixed_key: bool = False
) -> Supplied:
    """Check that a supplier makes new processors; return their class and stores.

    Raises:
        TopologyError: It makes something else, or the same one twice.
    """
    return _checked(supplier, node, FixedKeyProcessor if fixed_key else Processor)


def checked_transformer(supplier: Callable[[], Any], node: str) -> Supplied:
    """Check that a supplier makes new transformers; return their class and stores."""
    return _checked(supplier, node, ValueTransformerWithKey)


def _checked(supplier: Callable[[], Any], node: str, wanted: type[Any]) -> Supplied:
    if isinstance(supplier, wanted):
        msg = (
            f"Step {node!r} was given a {wanted.__name__}, but every task needs its own. "
            f"Give it the class, or `lambda: {type(supplier).__name__}(…)`."
        )
        raise TopologyError(msg)
    if not callable(supplier):
        msg = f"Step {node!r} was given {supplier!r}, which makes no {wanted.__name__}."
        raise TopologyError(msg)
    try:
        one, other = supplier(), supplier()
    except Exception as error:
        msg = (
            f"The supplier of step {node!r} failed: {type(error).__name__}: {error}. "
            "It is called while building, so do the work in `init`."
        )
        raise TopologyError(msg) from error
    if not isinstance(one, wanted):
        msg = (
            f"The supplier of step {node!r} made {one!r}. "
            f"Let it make an instance of a subclass of {wanted.__name__}."
        )
        raise TopologyError(msg)
    if one is other:
        msg = (
            f"The supplier of step {node!r} made the same object twice. "
            "Let it make a new one each time."
        )
        raise TopologyError(msg)
    return Supplied(type(one), _checked_stores(one.stores(), node))


def _checked_stores(stores: Any, node: str) -> tuple[StoreBuilder[Any], ...]:
    together = tuple(stores) if isinstance(stores, Iterable) else (stores,)
    for store in together:
        if not isinstance(store, StoreBuilder):
            msg = (
                f"The `stores()` of step {node!r} gave {store!r}. "
                "Return store builders, for example `[Stores.key_value(…)]`."
            )
            raise TopologyError(msg)
    return together
