"""Functions of one argument: pipelines such as ``value|first:1|upper``.

A pipeline starts from the value and passes it from segment to segment; ``key`` and ``value`` start
over. The text after the first colon of a segment is its argument: JSON if it parses, else text. In
a processor a segment or an argument may also be ``$variable`` or ``@ts`` and the like; the `Scope`
resolves these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace_conformance.values import (
    UserError,
    as_list,
    as_number,
    as_text,
    as_windowed,
    compare,
    double_of,
    long_of,
    same,
    text_of,
    wrapped,
)


@dataclass(frozen=True)
class Scope:
    """The names that a pipeline may refer to besides the value that passes through it."""

    key: Any = None
    value: Any = None
    lookup: Callable[[str], Any] | None = None
    """Answers ``$variable`` and ``@ts``; None where only functions are allowed."""


Segment: TypeAlias = Callable[[Any, Any, Scope], Any]
"""``segment(value, argument, scope)``."""
Expression: TypeAlias = Callable[[Scope], Any]


def expression(source: Any) -> Expression:
    """Return the function that evaluates ``source``; what is not text is a constant."""
    if not isinstance(source, str):
        return lambda _scope: source
    segments = [_parsed(part) for part in source.split("|")]

    def evaluate(scope: Scope) -> Any:
        value = scope.value
        for run in segments:
            value = run(value, scope)
        return value

    return evaluate


def function(source: Any) -> Callable[[Any, Any], Any]:
    """Return ``source`` as ``f(key, value)``."""
    evaluate = expression(source)
    return lambda key, value: evaluate(Scope(key, value))


def value_function(source: Any) -> Callable[[Any], Any]:
    """Return ``source`` as ``f(value)``; there the key is null."""
    evaluate = expression(source)
    return lambda value: evaluate(Scope(None, value))


def predicate(source: Any) -> Callable[[Any, Any], bool]:
    """Return ``source`` as ``f(key, value)`` that holds if the result is ``true``."""
    evaluate = expression(source)
    return lambda key, value: evaluate(Scope(key, value)) is True


def argument_of(text: str | None) -> Any:
    """Return the argument in ``text``: JSON if it parses, else the text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parsed(part: str) -> Callable[[Any, Scope], Any]:
    if part[:1] in ("$", "@"):
        return lambda _value, scope: _looked_up(part, scope)
    name, colon, text = part.partition(":")
    segment = SEGMENTS.get(name)
    if segment is None:
        msg = f"There is no function {name!r}. Known: {sorted(SEGMENTS)}."
        raise ValueError(msg)
    if len(text) > 1 and text[0] in "$@":
        return lambda value, scope: segment(value, _looked_up(text, scope), scope)
    argument = argument_of(text if colon else None)
    return lambda value, scope: segment(value, argument, scope)


def _looked_up(name: str, scope: Scope) -> Any:
    if scope.lookup is None:
        msg = f"{name!r} has a meaning in processors only."
        raise ValueError(msg)
    return scope.lookup(name)


def _always(run: Callable[[Any], Any]) -> Segment:
    return lambda value, _argument, _scope: run(value)


def _unless_null(run: Callable[[Any], Any]) -> Segment:
    return lambda value, _argument, _scope: None if value is None else run(value)


def _with_argument(run: Callable[[Any, Any], Any]) -> Segment:
    return lambda value, argument, _scope: None if value is None else run(value, argument)


def _test(holds: Callable[[Any], bool]) -> Segment:
    return lambda value, _argument, _scope: value is not None and holds(value)


def _comparison(holds: Callable[[int], bool]) -> Segment:
    return lambda value, argument, _scope: value is not None and holds(compare(value, argument))


def _text_test(holds: Callable[[str, str], bool]) -> Segment:
    return lambda value, argument, _scope: (
        value is not None and holds(as_text(value), text_of(argument))
    )


def _arithmetic(run: Callable[[int | float, int | float], int | float]) -> Segment:
    # A null argument counts as 0: `add:$n` before `$n` was ever stored.
    return _with_argument(
        lambda value, argument: wrapped(
            run(as_number(value), 0 if argument is None else as_number(argument))
        )
    )


def _fail(_value: Any, _argument: Any, _scope: Scope) -> Any:
    raise UserError("fail")


def _fail_if(value: Any, argument: Any, _scope: Scope) -> Any:
    if same(value, argument):
        msg = f"fail_if {text_of(argument)}"
        raise UserError(msg)
    return value


def _split(value: Any, separator: Any, _scope: Scope) -> list[str]:
    if value is None:
        return []
    return [part for part in as_text(value).split(text_of(separator)) if part]


def _field(value: Any, name: Any) -> Any:
    return value.get(text_of(name)) if isinstance(value, dict) else None


def _at(value: Any, index: Any) -> Any:
    items = as_list(value)
    return items[index] if 0 <= index < len(items) else None


SEGMENTS: Mapping[str, Segment] = {
    "key": lambda _value, _argument, scope: scope.key,
    "value": lambda _value, _argument, scope: scope.value,
    "const": lambda _value, argument, _scope: argument,
    "null": _always(lambda _value: None),
    "true": _always(lambda _value: True),
    "false": _always(lambda _value: False),
    "is_null": _always(lambda value: value is None),
    "not_null": _always(lambda value: value is not None),
    "not": _always(lambda value: value is not True),
    "eq": lambda value, argument, _scope: same(value, argument),
    "ne": lambda value, argument, _scope: not same(value, argument),
    "or": lambda value, argument, _scope: argument if value is None else value,
    "pair": lambda value, _argument, scope: [scope.key, value],
    "with_key": lambda value, _argument, scope: f"{text_of(scope.key)}:{text_of(value)}",
    "empty": _always(lambda _value: []),
    "fail": _fail,
    "fail_if": _fail_if,
    "gt": _comparison(lambda order: order > 0),
    "ge": _comparison(lambda order: order >= 0),
    "lt": _comparison(lambda order: order < 0),
    "le": _comparison(lambda order: order <= 0),
    "positive": _test(lambda value: as_number(value) > 0),
    "negative": _test(lambda value: as_number(value) < 0),
    "even": _test(lambda value: int(as_number(value)) % 2 == 0),
    "odd": _test(lambda value: int(as_number(value)) % 2 != 0),
    "starts_with": _text_test(str.startswith),
    "ends_with": _text_test(str.endswith),
    "contains": _text_test(lambda value, part: part in value),
    "split_words": _always(lambda value: [] if value is None else as_text(value).split()),
    "split": _split,
    "repeat": lambda value, argument, _scope: [value] * argument,
    "chars": _unless_null(lambda value: list(as_text(value))),
    "upto": _unless_null(lambda value: list(range(1, long_of(value) + 1))),
    "identity": _always(lambda value: value),
    "upper": _unless_null(lambda value: as_text(value).upper()),
    "lower": _unless_null(lambda value: as_text(value).lower()),
    "len": _unless_null(lambda value: len(value if isinstance(value, list) else as_text(value))),
    "reverse": _unless_null(lambda value: as_text(value)[::-1]),
    "first": _with_argument(lambda value, count: as_text(value)[:count]),
    "append": _with_argument(lambda value, text: text_of(value) + text_of(text)),
    "prepend": _with_argument(lambda value, text: text_of(text) + text_of(value)),
    "str": _unless_null(text_of),
    "long": _unless_null(long_of),
    "double": _unless_null(double_of),
    "add": _arithmetic(lambda value, argument: value + argument),
    "sub": _arithmetic(lambda value, argument: value - argument),
    "mul": _arithmetic(lambda value, argument: value * argument),
    "mod": _arithmetic(lambda value, argument: value % argument),
    "neg": _unless_null(lambda value: wrapped(-as_number(value))),
    "null_if_negative": _unless_null(lambda value: None if as_number(value) < 0 else value),
    "null_if": _with_argument(lambda value, argument: None if same(value, argument) else value),
    "get": _with_argument(_field),
    "at": _with_argument(_at),
    "obj": _with_argument(lambda value, field: {text_of(field): value}),
    "win_key": _unless_null(lambda value: as_windowed(value).key),
    "win_start": _unless_null(lambda value: as_windowed(value).window.start),
    "win_end": _unless_null(lambda value: as_windowed(value).window.end),
    "win_str": _unless_null(lambda value: str(as_windowed(value))),
}
"""Every function of one argument, by name."""
