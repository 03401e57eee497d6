"""The leaves of a map and the index over them, as far as they are loaded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable
from itertools import chain
from typing import Any, TypeAlias

from headrace.runtime.btree.pages import (
    COUNTER,
    HEAD,
    HEAD_LEAF,
    INLINE,
    NUMBERED,
    Choose,
    Key,
    Leaf,
    LeafLimits,
    Node,
    choose_all,
    choose_prefixes,
    decode_counter,
    decode_head,
    decode_leaves,
    decode_node,
    numbered,
    store_prefix,
)

Loading: TypeAlias = Generator[list[bytes], list[bytes | None], None]
"""Yields the keys of blobs and is sent the blobs, until what is wanted is there."""

Found: TypeAlias = list[tuple[int, Any]]
"""Numbers of leaves, and what is wanted of each."""


class LeafTree:
    """What is loaded of a map.

    Args:
        store: The store it belongs to.
        segment: The number of the segment it is, if the store has segments.
        limits: How large leaves become.
        on_leaves: Called with the leaves that were loaded.
    """

    def __init__(
        self,
        store: str,
        segment: int | None,
        limits: LeafLimits,
        on_leaves: Callable[[list[Leaf]], None],
    ) -> None:
        self.store = store
        self.prefix = store_prefix(store, segment)
        self.limits = limits
        self._on_leaves = on_leaves
        self.tick = 0
        """How often the map was flushed."""
        self.forget()

    def forget(self) -> None:
        """Forget what was loaded."""
        self.level: int | None = None
        """How many nodes lie between the head and a leaf; None if the head is not loaded."""
        self.root = Node([], [])
        self.nodes: dict[int, Node] = {}
        self.leaves: dict[int, Leaf] = {}
        self.complete = False
        """Whether all leaves are loaded."""
        self.count: int | None = None
        """How many entries the leaves have, if it is known."""
        self.next_id = 1

    def open(self, blob: bytes | None) -> None:
        """Take the head as loaded; None says that there are no entries."""
        keys: list[Key] = []
        below: list[Any] = []
        self.level = INLINE
        if blob is not None:
            self.level, keys, below = decode_head(blob, self.store)
        if self.level == INLINE:
            self.count = len(keys)
            self.complete = True
            leaf = self.leaves[HEAD_LEAF] = Leaf(keys, below, len(blob or b""), self.tick)
            self._on_leaves([leaf])
        else:
            self.root = Node(keys, below)

    def is_small(self) -> bool:
        """Return whether it is worth loading whole."""
        return self.level == INLINE or (
            self.level == 0 and len(self.root.ids) <= self.limits.loaded_whole
        )

    def opening(self) -> Loading:
        """Load the head."""
        if self.level is None:
            [blob] = yield [self.prefix + HEAD]
            # Two loadings may ask for the same at the same time.
            if self.level is None:
                self.open(blob)

    def counting(self) -> Loading:
        """Load how many entries there are."""
        yield from self.opening()
        if self.count is None:
            [blob] = yield [self.prefix + COUNTER]
            self.count, self.next_id = decode_counter(blob, self.store)

    def loading(self, choose: Choose, wanted: Any) -> Loading:
        """Load the leaves that hold what is wanted, level by level.

        Args:
            choose: Says which children of a node these are.
            wanted: What is wanted.
        """
        yield from self.opening()
        if not self.complete:
            found = yield from self.descending(choose, wanted)
            yield from self.load_leaves([id_ for id_, _ in found])

    def descending(
        self, choose: Choose, wanted: Any
    ) -> Generator[list[bytes], list[bytes | None], Found]:
        """Load the nodes over what is wanted, and return which leaves these are."""
        assert self.level is not None, "the head is loaded"
        below: Found = []
        nodes: list[tuple[Node, Any]] = [(self.root, wanted)]
        for level in range(self.level, -1, -1):
            below = [
                (node.ids[child], part)
                for node, wanted in nodes
                for child, part in choose(node.lows, wanted)
            ]
            if level:
                yield from self._load_nodes([id_ for id_, _ in below])
                nodes = [(self.nodes[id_], part) for id_, part in below]
        return below

    def load_leaves(self, ids: list[int]) -> Loading:
        """Load leaves that are not loaded yet."""
        leaves = self.leaves
        missing = [id_ for id_ in ids if id_ not in leaves]
        if missing:
            prefix, store = self.prefix + NUMBERED, self.store
            wanted = [prefix + numbered(id_) for id_ in missing]
            # The counter is read along, so that the flush need not wait for it.
            counts = self.count is None
            blobs = yield [*wanted, self.prefix + COUNTER] if counts else wanted
            if counts:
                self.count, self.next_id = decode_counter(blobs.pop(), store)
            decoded, tick, loaded = decode_leaves(blobs, store), self.tick, []
            for id_, blob, (keys, values) in zip(missing, blobs, decoded, strict=True):
                if id_ not in leaves:
                    leaf = leaves[id_] = Leaf(keys, values, len(blob or b""), tick)
                    loaded.append(leaf)
            self._on_leaves(loaded)
        self.complete = self.level == 0 and len(leaves) == len(self.root.ids)

    def loading_all(self) -> Loading:
        """Load all leaves."""
        yield from self.loading(choose_all, None)

    def indexing(self) -> Loading:
        """Load all nodes, but no leaves."""
        yield from self.opening()
        assert self.level is not None, "the head is loaded"
        nodes = [self.root]
        for _ in range(self.level):
            ids = list(chain.from_iterable(node.ids for node in nodes))
            yield from self._load_nodes(ids)
            nodes = [self.nodes[id_] for id_ in ids]

    def _load_nodes(self, ids: list[int]) -> Loading:
        missing = [id_ for id_ in ids if id_ not in self.nodes]
        if missing:
            prefix = self.prefix + NUMBERED
            blobs = yield [prefix + numbered(id_) for id_ in missing]
            for id_, blob in zip(missing, blobs, strict=True):
                if id_ not in self.nodes:
                    self.nodes[id_] = decode_node(blob, self.store)

    def leaf_of(self, key: Key) -> Leaf | None:
        """Return the leaf a key belongs to, if it is loaded."""
        node = self.root
        if self.level == 0:
            return self.leaves.get(node.ids[bisect_right(node.lows, key, 1) - 1])
        if self.level is None:
            return None
        if self.level == INLINE:
            return self.leaves[HEAD_LEAF]
        for _ in range(self.level):
            below = self.nodes.get(node.ids[bisect_right(node.lows, key, 1) - 1])
            if below is None:
                return None
            node = below
        return self.leaves.get(node.ids[bisect_right(node.lows, key, 1) - 1])

    def next_to(self, key: Key, count: int) -> list[int]:
        """Return the numbers of the leaves behind that of a key; its nodes must be loaded."""
        node = self.root
        for _ in range(self.level or 0):
            node = self.nodes[node.ids[bisect_right(node.lows, key, 1) - 1]]
        child = bisect_right(node.lows, key, 1)
        return node.ids[child : child + count]

    def end_of_leaf(self, key: Key) -> Key | None:
        """Return where the leaf after that of a key begins, or None; nodes must be loaded."""
        if self.level == INLINE:
            return None
        upper, node = None, self.root
        for level in range(self.level or 0, -1, -1):
            child = bisect_right(node.lows, key, 1) - 1
            if child + 1 < len(node.lows):
                upper = node.lows[child + 1]
            if level:
                node = self.nodes[node.ids[child]]
        return upper

    def start_of_leaf(self, key: Key) -> Key | None:
        """Return where the leaf of what comes before a key begins, or None if it is the first."""
        if self.level == INLINE:
            return None
        lower, node = None, self.root
        for level in range(self.level or 0, -1, -1):
            child = bisect_left(node.lows, key, 1) - 1
            if child:
                lower = node.lows[child]
            if level:
                node = self.nodes[node.ids[child]]
        return lower

    def leaves_of(self, begin: bytes) -> list[Leaf] | None:
        """Return the leaves of tuples that begin with given bytes, if they are loaded."""
        if self.level is None:
            return None
        if self.level == INLINE:
            return [self.leaves[HEAD_LEAF]]
        nodes = [self.root]
        for level in range(self.level, -1, -1):
            ids = [
                node.ids[child]
                for node in nodes
                for child, _ in choose_prefixes(node.lows, [begin])
            ]
            loaded: dict[int, Any] = self.nodes if level else self.leaves
            if any(id_ not in loaded for id_ in ids):
                return None
            nodes = [loaded[id_] for id_ in ids]
        return nodes  # type: ignore[return-value]  # the last were leaves


def run_all(
    loadings: Iterable[Loading], get_many: Callable[[list[bytes]], list[bytes | None]]
) -> None:
    """Run loadings side by side: what they ask for at the same time is fetched in one burst."""
    waiting: list[tuple[Loading, list[bytes]]] = []
    for loading in loadings:
        asked = next(loading, None)
        if asked is not None:
            waiting.append((loading, asked))
    while waiting:
        blobs = get_many([key for _, asked in waiting for key in asked])
        start, following = 0, []
        for loading, asked in waiting:
            answer = blobs[start : start + len(asked)]
            start += len(asked)
            try:
                following.append((loading, loading.send(answer)))
            except StopIteration:
                continue
        waiting = following
