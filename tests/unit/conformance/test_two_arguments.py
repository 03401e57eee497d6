from __future__ import annotations

from typing import Any

import pytest
from headrace_conformance.scenarios import load_golden, load_scenario
from headrace_conformance.two_arguments import combination
from headrace_conformance.values import UserError, WrongTypeError


@pytest.mark.parametrize(
    ("source", "a", "b", "result"),
    [
        ("sum", None, 2, 2),
        ("sum", 1.5, None, 1.5),
        ("sum", 0.1, 0.2, 0.30000000000000004),
        ("sub", None, 2, -2),
        ("sum_or_null", None, 2, None),
        ("sum_or_null", 1, 2, 3),
        ("null_if_sum:3", 1, 2, None),
        ("null_if_sum:3", 1, 1, 2),
        ("concat", "a", None, "a+null"),
        ("concat:1.50", 1, 2.0, "11.502.0"),
        ("unconcat", "a", {"x": 1}, 'a-{"x":1}'),
        ("key_concat", 1, 2, "k:1+2"),
        ("min", None, 2, 2),
        ("min", "b", "a", "a"),
        ("max", 3, None, 3),
        ("first", 1, 2, 1),
        ("left", 1, 2, 1),
        ("last", 1, 2, 2),
        ("right", 1, 2, 2),
        ("pair", 1, None, [1, None]),
        ("key_pair", 1, 2, ["k", 1, 2]),
        ("count", None, 9, 1),
        ("uncount", 3, 9, 2),
        ("append", None, 1, [1]),
        ("remove", [1, 2, 1], 1, [2, 1]),
        ("remove", [1.0], 1, [1.0]),
        ("list_concat", [1], [2], [1, 2]),
        ("null", 1, 2, None),
    ],
)
def test_a_function_of_two_arguments(source: str, a: Any, b: Any, result: Any) -> None:
    found = combination(source)("k", a, b)

    assert found == result
    assert type(found) is type(result)


def test_lists_are_never_changed_in_place() -> None:
    items = [1, 2]

    combination("append")(None, items, 3)
    combination("remove")(None, items, 1)

    assert items == [1, 2]


def test_text_cannot_be_summed() -> None:
    with pytest.raises(WrongTypeError):
        combination("sum")(None, "1", 2)


def test_fail_raises_what_a_user_would() -> None:
    with pytest.raises(UserError):
        combination("fail")(None, 1, 2)


def test_an_unknown_function_is_refused_before_it_runs() -> None:
    with pytest.raises(ValueError, match="'add'"):
        combination("add")


def test_the_vocabulary_means_what_it_means_in_java() -> None:
    name = "aggregate/functions"
    scenario, golden = load_scenario(name), load_golden(name)

    for operation in (o for o in scenario["operations"] if o["op"] == "aggregate"):
        combine = combination(operation["fn"])
        aggregates: dict[str, Any] = {}
        for step, recorded in zip(scenario["steps"], golden["steps"], strict=True):
            key = step["key"]
            before = aggregates.get(key)
            before = operation["init"] if before is None else before
            aggregates[key] = combine(key, before, step["value"])
            (record,) = recorded["out"][f"out-{operation['store'][1:]}"]
            assert aggregates[key] == record["value"], operation["fn"]
