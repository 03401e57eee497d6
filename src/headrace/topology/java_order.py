"""The orders in which Java's collections are read: `describe()` prints names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def in_java_hash_order(names: Iterable[str]) -> list[str]:
    """Return distinct names in the order in which a Java ``HashSet`` of them is read."""
    distinct = list(dict.fromkeys(names))
    capacity = 16
    while len(distinct) > capacity * 3 // 4:
        capacity *= 2

    def bucket(name: str) -> int:
        code = 0
        units = name.encode("utf-16-be")
        for high, low in zip(units[::2], units[1::2], strict=True):
            code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
        return (code ^ code >> 16) & capacity - 1

    return sorted(distinct, key=bucket)


@dataclass(eq=False)
class _Leaf:
    name: str
    parent: _Leaf | None
    left: _Leaf | None = None
    right: _Leaf | None = None
    red: bool = True


class JavaTreeOrder:
    """Names in the order of a Java ``TreeSet`` whose ranks change after names were added.

    Kafka ranks neighbours by sizes that still grow, so where a name lands depends on the shape the
    red-black tree has at that moment. Only adding is needed.
    """

    def __init__(self, rank: Callable[[str], Any]) -> None:
        self._rank = rank
        self._root: _Leaf | None = None

    def add(self, name: str) -> None:
        """Add a name where the present ranks put it."""
        rank = self._rank(name)
        parent, leaf = None, self._root
        while leaf is not None:
            parent = leaf
            leaf = leaf.left if rank < self._rank(leaf.name) else leaf.right
        added = _Leaf(name, parent)
        if parent is None:
            self._root = added
        elif rank < self._rank(parent.name):
            parent.left = added
        else:
            parent.right = added
        self._rebalance(added)

    def __iter__(self) -> Iterator[str]:
        return self._walk(self._root)

    def _walk(self, leaf: _Leaf | None) -> Iterator[str]:
        if leaf is not None:
            yield from self._walk(leaf.left)
            yield leaf.name
            yield from self._walk(leaf.right)

    def _rebalance(self, leaf: _Leaf) -> None:
        while (parent := leaf.parent) is not None and parent.red:
            grandparent = parent.parent
            assert grandparent is not None, "the root is black"
            parent_is_left = grandparent.left is parent
            uncle = grandparent.right if parent_is_left else grandparent.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grandparent.red = True
                leaf = grandparent
                continue
            if leaf is (parent.right if parent_is_left else parent.left):
                self._rotate(parent, to_left=parent_is_left)
                leaf, parent = parent, leaf
            parent.red = False
            grandparent.red = True
            self._rotate(grandparent, to_left=not parent_is_left)
        assert self._root is not None, "a name was just added"
        self._root.red = False

    def _rotate(self, down: _Leaf, *, to_left: bool) -> None:
        up = down.right if to_left else down.left
        assert up is not None, "only a leaf with that child is turned"
        moved = up.left if to_left else up.right
        if to_left:
            down.right, up.left = moved, down
        else:
            down.left, up.right = moved, down
        if moved is not None:
            moved.parent = down
        up.parent = down.parent
        if down.parent is None:
            self._root = up
        elif down.parent.left is down:
            down.parent.left = up
        else:
            down.parent.right = up
        down.parent = up


class JavaPriorityQueue(Generic[T]):
    """Items by rank, those of equal rank in the order of Java's ``PriorityQueue``.

    Its heap does not keep items of equal rank in the order in which they came.
    """

    def __init__(self, rank: Callable[[T], Any]) -> None:
        self._rank = rank
        self._heap: list[T] = []

    def first(self) -> T:
        """Return the item of the lowest rank."""
        return self._heap[0]

    def add(self, item: T) -> None:
        """Add an item."""
        heap, rank = self._heap, self._rank
        heap.append(item)
        at = len(heap) - 1
        while at > 0 and rank(item) < rank(heap[(at - 1) // 2]):
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = item

    def pop(self) -> T:
        """Remove and return the item of the lowest rank; its rank may have changed since."""
        heap, rank = self._heap, self._rank
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        at = 0
        while (child := 2 * at + 1) < len(heap):
            if child + 1 < len(heap) and rank(heap[child + 1]) < rank(heap[child]):
                child += 1
            if not rank(heap[child]) < rank(last):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first
