"""The names Kafka accepts."""

from __future__ import annotations

import pytest

from headrace.errors import TopologyError
from headrace.state.names import checked_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_a_legal_name_is_returned(name: str) -> None:
    assert checked_name(name, what="store") == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        (".", "would be a path"),
        ("..", "would be a path"),
        ("x" * 250, "has 250 characters"),
        ("a b", "has other characters"),
        ("ä", "has other characters"),
        ("a\n", "has other characters"),
        (7, "is int, not text"),
    ],
)
def test_another_name_is_refused_with_the_reason(name: str, problem: str) -> None:
    with pytest.raises(TopologyError) as caught:
        checked_name(name, what="store")

    assert str(caught.value) == (
        f"The name {name!r} of a store {problem}. Use 1 to 249 letters, digits, '.', '_' or '-'."
    )
