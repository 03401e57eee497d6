"""The orders of Java's collections; expected orders were printed by Java 17."""

from __future__ import annotations

import random

import pytest

from headrace.topology.java_order import JavaPriorityQueue, JavaTreeOrder, in_java_hash_order


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["b", "a", "c"], ["a", "b", "c"]),
        (["Aa", "BB"], ["Aa", "BB"]),  # equal hash codes stay in the order they came
        (["BB", "Aa"], ["BB", "Aa"]),
        (["a", "b", "a"], ["a", "b"]),
        (["q", "a"], ["q", "a"]),  # 113 and 97 share a bucket of 16
        ([], []),
    ],
)
def test_names_are_read_as_from_a_hash_set(names: list[str], expected: list[str]) -> None:
    assert in_java_hash_order(names) == expected


def test_a_set_that_grew_has_more_buckets() -> None:
    letters = [chr(code) for code in range(ord("a"), ord("a") + 13)]

    assert in_java_hash_order(["q", "a", *letters])[:2] == ["a", "b"]
    assert in_java_hash_order(["a", "A", *letters])[:3] == ["a", "A", "b"]  # 32, not yet 64


def test_characters_beyond_the_first_plane_count_as_two() -> None:
    assert in_java_hash_order(["😀", "a"]) == ["a", "😀"]


@pytest.mark.parametrize("seed", range(20))
def test_with_ranks_that_stay_a_tree_is_read_in_their_order(seed: int) -> None:
    names = [f"{number:03}" for number in range(60)]
    random.Random(seed).shuffle(names)
    tree = JavaTreeOrder(lambda name: name)

    for name in names:
        tree.add(name)

    assert list(tree) == sorted(names)


def test_a_name_lands_where_the_ranks_of_that_moment_put_it() -> None:
    ranks = {"a": 1, "b": 2, "c": 0}
    tree = JavaTreeOrder(lambda name: ranks[name])
    tree.add("a")
    tree.add("b")

    ranks["b"] = -5
    tree.add("c")

    assert list(tree) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("ranks", "order"),
    [
        ([1, 1, 1, 1, 1], [0, 4, 3, 2, 1]),
        ([3, 1, 2, 1, 3, 2, 1], [1, 3, 6, 2, 5, 0, 4]),
        ([5, 4, 3, 2, 1, 0], [5, 4, 3, 2, 1, 0]),
    ],
)
def test_a_priority_queue_breaks_ties_as_javas_does(ranks: list[int], order: list[int]) -> None:
    queue: JavaPriorityQueue[int] = JavaPriorityQueue(lambda at: ranks[at])
    for at in range(len(ranks)):
        queue.add(at)

    polled = []
    for _ in ranks:
        first = queue.first()
        polled.append(queue.pop())
        assert polled[-1] == first

    assert polled == order
