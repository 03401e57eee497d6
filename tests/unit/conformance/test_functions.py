from __future__ import annotations

from typing import Any

import pytest
from headrace_conformance.functions import (
    Scope,
    expression,
    function,
    predicate,
    value_function,
)
from headrace_conformance.scenarios import load_golden, load_scenario
from headrace_conformance.values import UserError, WrongTypeError, json_of

from headrace import Window, Windowed


@pytest.mark.parametrize(
    ("source", "value", "result"),
    [
        ("const:5|add:2", "x", 7),
        ("const:all", 1, "all"),
        ('const:"5"', 1, "5"),
        ("null", 1, None),
        ("is_null|not", 1, True),
        ("not", None, True),
        ("eq:1", 1.0, False),
        ("ne:1", 1.0, True),
        ("or:0", None, 0),
        ("empty", 1, []),
        ("fail_if:3", 4, 4),
        ("gt:1", 2, True),
        ("gt:1", None, False),
        ("ge:2", 2.0, True),
        ("lt:b", "a", True),
        ("le:1", 2, False),
        ("positive", 0, False),
        ("negative", -1, True),
        ("even", -2, True),
        ("odd", -3, True),
        ("starts_with:1", "12", True),
        ("ends_with:d", None, False),
        ("contains:o", "foo", True),
        ("split_words", " a  b ", ["a", "b"]),
        ("split::", ":a::b", ["a", "b"]),
        ("split:,", None, []),
        ("repeat:2", None, [None, None]),
        ("chars", "ab", ["a", "b"]),
        ("chars", None, None),
        ("upto", 3, [1, 2, 3]),
        ("identity", None, None),
        ("upper", "é", "É"),
        ("len", [1, 2], 2),
        ("reverse", "abc", "cba"),
        ("first:2", "abc", "ab"),
        ("append:1", "a", "a1"),
        ("append:!", 1.0, "1.0!"),
        ("prepend:7", "a", "7a"),
        ("str", 1e7, "1.0E7"),
        ("long", "-5", -5),
        ("long", -1.9, -1),
        ("double", 1, 1.0),
        ("add:1", 2**63 - 1, -(2**63)),
        ("add:0.5", 1, 1.5),
        ("sub:3", 1, -2),
        ("mul:2", 3.0, 6.0),
        ("neg", 1, -1),
        ("mod:3", -1, 2),
        ("null_if_negative", -1, None),
        ("null_if:x", "x", None),
        ("get:a", {"a": 1}, 1),
        ("get:b", {"a": 1}, None),
        ("get:a", "text", None),
        ("at:1", [1, 2], 2),
        ("at:2", [1, 2], None),
        ("obj:a", 1, {"a": 1}),
        ("upper", None, None),
        ("add:1", None, None),
    ],
)
def test_a_pipeline_of_the_value(source: str, value: Any, result: Any) -> None:
    found = value_function(source)(value)

    assert found == result
    assert type(found) is type(result)


def test_a_pipeline_may_start_over_from_the_key_or_the_value() -> None:
    assert function("key|upper")("k", "v") == "K"
    assert function("const:1|value|append:!")("k", "v") == "v!"
    assert function("pair|at:0")("k", "v") == "k"
    assert function("with_key")("k", None) == "k:null"


def test_windowed_keys_have_parts() -> None:
    windowed = Windowed("a", Window(5, 15))

    assert function("key|win_key")(windowed, None) == "a"
    assert function("key|win_start")(windowed, None) == 5
    assert function("key|win_end")(windowed, None) == 15
    assert function("key|win_str")(windowed, None) == "[a@5/15]"


def test_an_argument_that_is_no_text_is_a_constant() -> None:
    assert function(3)("k", "v") == 3
    assert function(None)("k", "v") is None


def test_a_predicate_holds_if_the_result_is_true() -> None:
    assert predicate("not_null")("k", 1) is True
    assert predicate("value")("k", 1) is False


@pytest.mark.parametrize("source", ["upper", "starts_with:a", "at:0", "win_key"])
def test_a_value_of_the_wrong_type_fails(source: str) -> None:
    with pytest.raises(WrongTypeError):
        value_function(source)(5)


def test_arithmetic_on_text_fails() -> None:
    with pytest.raises(WrongTypeError):
        value_function("add:1")("5")


def test_fail_raises_what_a_user_would() -> None:
    with pytest.raises(UserError, match="fail_if 3"):
        value_function("fail_if:3")(3)
    with pytest.raises(UserError, match="fail"):
        value_function("fail")(3)


def test_an_unknown_function_is_refused_before_it_runs() -> None:
    with pytest.raises(ValueError, match="'uper'"):
        value_function("uper")


def test_variables_may_start_a_pipeline_or_be_an_argument() -> None:
    known = {"$n": 2, "@ts": 7, "@header:h": "x", "$none": None}
    scope = Scope("k", 5, known.__getitem__)

    assert expression("$n|add:1")(scope) == 3
    assert expression("add:$n")(scope) == 7
    assert expression("add:$none")(scope) == 5
    assert expression("@ts|add:@ts")(scope) == 14
    assert expression("@header:h|upper")(scope) == "X"


def test_variables_have_no_meaning_outside_processors() -> None:
    with pytest.raises(ValueError, match="processors only"):
        value_function("$n")(1)


def test_the_vocabulary_means_what_it_means_in_java() -> None:
    name = "stateless/functions-text"
    operations = {o["id"]: o for o in load_scenario(name)["operations"]}
    steps = zip(load_scenario(name)["steps"], load_golden(name)["steps"], strict=True)

    for step, golden in steps:
        for sink in (o for o in operations.values() if o["op"] == "to"):
            source = operations[sink["in"][0]]["fn"]
            (record,) = golden["out"][sink["topic"]]
            assert json_of(function(source)(step["key"], step["value"])) == record["value"], source
