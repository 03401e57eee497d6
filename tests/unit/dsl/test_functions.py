"""Functions with and without the key, distinguished by their signature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace import StreamsBuilder
from headrace.dsl.functions import checked_arity, wants_key, with_key
from headrace.errors import TopologyError


class Callables:
    """Things that can be called: a method, an instance, a class."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def method(self, value: Any) -> Any:
        return value

    def __call__(self, key: Any, value: Any) -> Any:
        return key, value


@pytest.mark.parametrize(
    ("function", "wants"),
    [
        pytest.param(lambda value: value, False, id="one"),
        pytest.param(lambda key, value: value, True, id="two"),
        pytest.param(lambda value, other=None: value, False, id="one and an option"),
        pytest.param(lambda *values: values, False, id="any number"),
        pytest.param(lambda value, *, option=1: value, False, id="keyword"),
        pytest.param(partial(lambda a, b, c: a, 1), True, id="partial"),
        pytest.param(str.upper, False, id="method of a class"),
        pytest.param(Callables().method, False, id="bound method"),
        pytest.param(Callables(), True, id="instance"),
        pytest.param(Callables, False, id="class"),
        pytest.param(int, False, id="builtin without a signature"),
        pytest.param(len, False, id="builtin"),
    ],
)
def test_the_short_form_wins_if_it_can_be_called_so(
    function: Callable[..., Any], wants: bool
) -> None:
    assert wants_key(function, 1, step="s") is wants


def test_a_joiner_may_want_the_key_before_both_values() -> None:
    assert wants_key(lambda left, right: left, 2, step="s") is False
    assert wants_key(lambda key, left, right: left, 2, step="s") is True


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda: 1,
            "The function of step 's' takes (), but it is called with 1 arguments, "
            "or with 2 if it wants the key first.",
        ),
        (
            lambda value, *, needed: 1,
            "The function of step 's' takes (value, *, needed), but it is called with 1 "
            "arguments, or with 2 if it wants the key first.",
        ),
        ("text", "Step 's' was given 'text', which is not a function."),
    ],
)
def test_a_function_that_fits_neither_way_is_refused(function: Any, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        wants_key(function, 1, step="s")

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("function", "short", "arguments", "result"),
    [
        (lambda value: value, 1, ("k", 1), 1),
        (lambda key, value: (key, value), 1, ("k", 1), ("k", 1)),
        (lambda left, right: (left, right), 2, ("k", 1, 2), (1, 2)),
        (lambda key, left, right: (key, left, right), 2, ("k", 1, 2), ("k", 1, 2)),
    ],
)
def test_with_key_makes_a_function_that_always_takes_the_key(
    function: Any, short: int, arguments: tuple[Any, ...], result: Any
) -> None:
    assert with_key(function, short, step="s")(*arguments) == result


def test_an_arity_is_checked() -> None:
    checked_arity(lambda a, b: a, 2, step="s")
    checked_arity(int, 2, step="s")

    with pytest.raises(TopologyError, match=r"takes \(a\), but it is called with 2 arguments"):
        checked_arity(lambda a: a, 2, step="s")
    with pytest.raises(TopologyError, match="'s' was given None, which is not a function"):
        checked_arity(None, 2, step="s")  # type: ignore[arg-type]


class Asynchronous:
    async def __call__(self, key: Any, value: Any) -> Any:
        return key, value


async def asynchronous(_key: Any, _value: Any) -> bool:
    return False


async def items(_key: Any, value: Any) -> Any:
    yield value


def item(_key: Any, value: Any) -> Any:
    yield value


@pytest.mark.parametrize(
    "function",
    [asynchronous, items, partial(asynchronous), Asynchronous(), Asynchronous().__call__],
)
def test_an_asynchronous_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TopologyError, match="The function of step 'filter' is asynchronous"):
        checked_arity(function, 2, step="filter")
    with pytest.raises(TopologyError, match="The function of step 'map' is asynchronous"):
        wants_key(function, 1, step="map")


def test_a_generator_is_refused_where_nothing_iterates_over_it() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)

    for add in (stream.filter, stream.foreach, stream.peek):
        with pytest.raises(TopologyError, match="is a generator, so a call of it does nothing"):
            add(item)
    with pytest.raises(TopologyError, match="is a generator"):
        stream.split().branch(item)
    with pytest.raises(TopologyError, match="is a generator"):
        builder.table("table", key=str, value=str).filter(item)
    stream.flat_map(item)
    stream.flat_map_values(item)
