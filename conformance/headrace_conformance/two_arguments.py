"""Functions of two arguments: aggregators, reducers and joiners such as ``sum`` or ``concat:/``.

The first is the aggregate or the left side, the second the value or the right side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace_conformance.functions import argument_of
from headrace_conformance.values import (
    UserError,
    as_list,
    as_number,
    compare,
    same,
    text_of,
    wrapped,
)

Combination: TypeAlias = Callable[[Any, Any, Any], Any]
"""``combine(key, a, b)``; the key is null where the operation does not hand it over."""


def combination(source: Any) -> Combination:
    """Return ``source`` as ``f(key, a, b)``; what is not text is a constant."""
    if not isinstance(source, str):
        return lambda _key, _a, _b: source
    name, colon, text = source.partition(":")
    build = COMBINATIONS.get(name)
    if build is None:
        msg = f"There is no function {name!r} of two arguments. Known: {sorted(COMBINATIONS)}."
        raise ValueError(msg)
    return build(text if colon else None)


def _or_zero(value: Any) -> int | float:
    return 0 if value is None else as_number(value)


def _sum(a: Any, b: Any) -> int | float:
    return wrapped(_or_zero(a) + _or_zero(b))


def _difference(a: Any, b: Any) -> int | float:
    return wrapped(_or_zero(a) - _or_zero(b))


def _joining(separator: str) -> Combination:
    return lambda _key, a, b: text_of(a) + separator + text_of(b)


def _chosen(a: Any, b: Any, sign: int) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return b if compare(b, a) * sign > 0 else a


def _without_first(items: list[Any], item: Any) -> list[Any]:
    for index, candidate in enumerate(items):
        if same(candidate, item):
            return items[:index] + items[index + 1 :]
    return items


def _null_if_sum(text: str | None) -> Combination:
    limit = argument_of(text)

    def combine(_key: Any, a: Any, b: Any) -> Any:
        total = _sum(a, b)
        return None if same(total, limit) else total

    return combine


def _fail(_key: Any, _a: Any, _b: Any) -> Any:
    raise UserError("fail")


def _plain(combine: Combination) -> Callable[[str | None], Combination]:
    return lambda _text: combine


def _items(value: Any) -> list[Any]:
    return [] if value is None else as_list(value)


COMBINATIONS: Mapping[str, Callable[[str | None], Combination]] = {
    "sum": _plain(lambda _key, a, b: _sum(a, b)),
    "sub": _plain(lambda _key, a, b: _difference(a, b)),
    "sum_or_null": _plain(lambda _key, a, b: None if a is None or b is None else _sum(a, b)),
    "null_if_sum": _null_if_sum,
    "concat": lambda text: _joining("+" if text is None else text),
    "unconcat": lambda text: _joining("-" if text is None else text),
    "key_concat": _plain(lambda key, a, b: f"{text_of(key)}:{text_of(a)}+{text_of(b)}"),
    "min": _plain(lambda _key, a, b: _chosen(a, b, -1)),
    "max": _plain(lambda _key, a, b: _chosen(a, b, 1)),
    "first": _plain(lambda _key, a, _b: a),
    "left": _plain(lambda _key, a, _b: a),
    "last": _plain(lambda _key, _a, b: b),
    "right": _plain(lambda _key, _a, b: b),
    "pair": _plain(lambda _key, a, b: [a, b]),
    "key_pair": _plain(lambda key, a, b: [key, a, b]),
    "count": _plain(lambda _key, a, _b: wrapped(_or_zero(a) + 1)),
    "uncount": _plain(lambda _key, a, _b: wrapped(_or_zero(a) - 1)),
    "append": _plain(lambda _key, a, b: [*_items(a), b]),
    "remove": _plain(lambda _key, a, b: _without_first(_items(a), b)),
    "list_concat": _plain(lambda _key, a, b: _items(a) + _items(b)),
    "null": _plain(lambda _key, _a, _b: None),
    "fail": _plain(_fail),
}
"""Every function of two arguments, by name: what follows the colon gives the function."""
