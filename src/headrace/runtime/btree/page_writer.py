"""Sorts what was changed into the leaves of a map, which adapt to how they are used."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

from headrace.runtime.btree.btree_map import LeafMap
from headrace.runtime.btree.pages import (
    COUNTER,
    HEAD,
    HEAD_LEAF,
    INLINE,
    NUMBERED,
    Chosen,
    Key,
    Leaf,
    Node,
    StateStats,
    choose_points,
    cut,
    encode_counter,
    encode_head,
    encode_leaf,
    encode_node,
    may_merge,
    numbered,
    pieces_of,
    separator,
)

Edit: TypeAlias = tuple[int, int, list[Key], list[int]]
"""Children from one position to before another, and what takes their place: lowest keys and
numbers."""

_DENSE = 8
"""If less than one in so many entries changed, they are looked up one by one."""
_ONE_BLOB = 8_192
"""A map that takes no more is not split because little of it was touched."""

_FEW_CHILDREN = 8
"""A node that has less than this share of the most children may go together with the next."""


class _Run:
    """Neighbouring leaves that become one, or several."""

    __slots__ = ("end", "is_spread", "keys", "size", "start", "touched", "values")

    def __init__(
        self, start: int, leaf: Leaf, keys: list[Key], values: list[Any], touched: int
    ) -> None:
        self.start = start
        self.end = start + 1
        self.keys = keys
        self.values = values
        self.touched = touched
        self.size = leaf.size
        self.is_spread = leaf.is_spread

    def measures(self) -> tuple[int, int, int]:
        return len(self.keys), self.touched, self.size


Piece: TypeAlias = tuple[list[Key], list[Any], bytes]
"""Keys, values and blob of a leaf."""


class LeafWriter:
    """Writes the changes of one map; what they need must be loaded: see `LeafMap.resolving`.

    Args:
        target: The map.
        changes: The blobs that are written or removed.
        stats: What is done is counted here.
    """

    def __init__(
        self, target: LeafMap, changes: dict[bytes, bytes | None], stats: StateStats
    ) -> None:
        self._map = target
        self._tree = target.tree
        self._changes = changes
        self._stats = stats
        self._limits = target.tree.limits
        self._prefix = target.tree.prefix + NUMBERED
        self._has_small_nodes = False

    def write(self) -> None:
        """Write what was changed since the last flush; it then counts as unchanged."""
        target, tree = self._map, self._tree
        before = tree.count, tree.next_id
        assert tree.count is not None, "it was loaded"
        tree.count += len(target.fresh) - len(target.removed)
        if tree.level == INLINE:
            self._write_inline(target.pending)
        else:
            assert tree.level is not None, "it was loaded"
            if self._rewrite(tree.root, tree.level, target.pending):
                self._write_root()
        if tree.level != INLINE and (tree.count, tree.next_id) != before:
            self._changes[tree.prefix + COUNTER] = encode_counter(tree.count, tree.next_id)
        target.settle()

    def remove(self) -> None:
        """Remove the map; its nodes must be loaded: see `LeafTree.indexing`."""
        tree = self._tree
        if tree.level != INLINE:
            for node in (tree.root, *tree.nodes.values()):
                for id_ in node.ids:
                    self._changes[self._prefix + numbered(id_)] = None
            self._changes[tree.prefix + COUNTER] = None
        if tree.level != INLINE or tree.leaves[HEAD_LEAF].size:
            self._changes[tree.prefix + HEAD] = None

    def _write_inline(self, touched: list[Key]) -> None:
        tree = self._tree
        leaf = tree.leaves[HEAD_LEAF]
        run = _Run(0, leaf, *self._changed(leaf, touched), len(touched))
        if leaf.size <= _ONE_BLOB:
            run.touched = max(run.touched, len(run.keys))
        pieces = self._pieces(run)
        if len(pieces) > 1:
            del tree.leaves[HEAD_LEAF]
            tree.level, tree.next_id = 0, 1
            tree.root = Node([], [])
            _replace(tree.root, [self._placed(run, pieces, [], None)])
            self._write_root()
        elif run.keys or leaf.size:
            self._write_head_leaf(run.keys, run.values)

    def _write_head_leaf(self, keys: list[Key], values: list[Any]) -> None:
        blob = encode_head(INLINE, keys, values) if keys else b""
        leaf = Leaf(keys, values, len(blob), self._tree.tick)
        leaf.is_spread = True
        self._tree.leaves = {HEAD_LEAF: leaf}
        self._changes[self._tree.prefix + HEAD] = blob or None

    def _write_root(self) -> None:
        tree, root = self._tree, self._tree.root
        assert tree.level is not None, "it was loaded"
        if not root.ids:
            tree.level = 0
        while len(root.ids) > self._limits.most_children:
            lows, ids = self._split_node(root)
            tree.root = root = Node(lows, ids)
            tree.level += 1
        while tree.level > 0 and len(root.ids) == 1 and root.ids[0] in tree.nodes:
            id_ = root.ids[0]
            tree.root = root = tree.nodes.pop(id_)
            tree.level -= 1
            self._changes[self._prefix + numbered(id_)] = None
        if tree.level == 0 and not root.ids:
            self._collapse([], [])
        elif tree.level == 0 and len(root.ids) == 1 and root.ids[0] in tree.leaves:
            leaf = tree.leaves[root.ids[0]]
            self._changes[self._prefix + numbered(root.ids[0])] = None
            self._collapse(leaf.keys, leaf.values)
        else:
            self._changes[tree.prefix + HEAD] = encode_head(tree.level, root.lows, root.ids)

    def _collapse(self, keys: list[Key], values: list[Any]) -> None:
        """Let the head hold the entries of the last leaf."""
        tree = self._tree
        self._changes[tree.prefix + COUNTER] = None
        self._write_head_leaf(keys, values)
        setdefault = self._map.data.setdefault
        for key, value in zip(keys, values, strict=True):
            setdefault(key, value)
        tree.level, tree.root, tree.next_id = INLINE, Node([], []), 1
        tree.complete = True

    def _rewrite(self, node: Node, level: int, touched: list[Key]) -> bool:
        """Rewrite what is below a node; return whether that changed the node."""
        chosen = choose_points(node.lows, touched)
        if level == 0:
            edits = self._rewrite_leaves(node, chosen)
        else:
            found = (self._rewrite_node(node, child, level - 1, part) for child, part in chosen)
            edits = [edit for edit in found if edit is not None]
        _replace(node, edits)
        if self._has_small_nodes:
            self._has_small_nodes = False
            return self._merge_nodes(node) or bool(edits)
        return bool(edits)

    def _rewrite_node(
        self, parent: Node, child: int, level: int, touched: list[Key]
    ) -> Edit | None:
        id_ = parent.ids[child]
        node = self._tree.nodes[id_]
        if not self._rewrite(node, level, touched):
            return None
        if not node.ids:
            del self._tree.nodes[id_]
            self._changes[self._prefix + numbered(id_)] = None
            return child, child + 1, [], []
        if len(node.ids) > self._limits.most_children:
            lows, ids = self._split_node(node, id_)
            return child, child + 1, [parent.lows[child], *lows[1:]], ids
        self._write_node(id_, node)
        if len(node.ids) * _FEW_CHILDREN < self._limits.most_children:
            self._has_small_nodes = True
        return None

    def _split_node(self, node: Node, id_: int | None = None) -> tuple[list[Key], list[int]]:
        pieces = -(-len(node.ids) * 4 // (self._limits.most_children * 3))
        lows, ids = [], []
        for low_keys, numbers in zip(cut(node.lows, pieces), cut(node.ids, pieces), strict=True):
            number = self._next_id() if id_ is None else id_
            id_ = None
            self._tree.nodes[number] = Node(low_keys, numbers)
            self._write_node(number, self._tree.nodes[number])
            lows.append(low_keys[0])
            ids.append(number)
        return lows, ids

    def _merge_nodes(self, parent: Node) -> bool:
        """Merge small nodes with the one after them, if that is loaded."""
        nodes, merged = self._tree.nodes, False
        most = self._limits.most_children
        for child in range(len(parent.ids) - 2, -1, -1):
            id_, next_id = parent.ids[child : child + 2]
            one, other = nodes.get(id_), nodes.get(next_id)
            if one is None or other is None or (len(one.ids) + len(other.ids)) * 2 > most:
                continue
            if min(len(one.ids), len(other.ids)) * _FEW_CHILDREN < most:
                # The lowest key of the other's first child is what its parent knows of it.
                one.lows += [parent.lows[child + 1], *other.lows[1:]]
                one.ids += other.ids
                self._write_node(id_, one)
                self._changes[self._prefix + numbered(next_id)] = None
                del nodes[next_id], parent.lows[child + 1], parent.ids[child + 1]
                merged = True
        return merged

    def _write_node(self, id_: int, node: Node) -> None:
        self._changes[self._prefix + numbered(id_)] = encode_node(node)

    def _rewrite_leaves(self, node: Node, chosen: Chosen) -> list[Edit]:
        edits: list[Edit] = []
        ids = node.ids
        for run in self._runs(ids, chosen):
            pieces = self._pieces(run)
            if len(pieces) == 1 and run.end - run.start == 1:
                self._put_leaf(ids[run.start], pieces[0], is_spread=run.is_spread)
            else:
                old_ids = ids[run.start : run.end]
                edits.append(self._placed(run, pieces, old_ids, node.lows[run.start]))
        return edits

    def _runs(self, ids: list[int], chosen: Chosen) -> list[_Run]:
        """Write the leaves that stay as they are; return the others, with neighbours to merge."""
        leaves, limits = self._tree.leaves, self._limits
        runs: list[_Run] = []
        last: _Run | None = None
        for child, touched in chosen:
            leaf = leaves[ids[child]]
            keys, values = self._changed(leaf, touched)
            if self._has_right_size(len(keys), len(touched), leaf.size):
                self._write_leaf(ids[child], leaf, keys, values, len(touched))
                continue
            run = _Run(child, leaf, keys, values, len(touched))
            if (
                last is not None
                and last.end == child
                and may_merge(last.measures(), run.measures(), limits)
            ):
                last.end += 1
                last.keys = last.keys + keys
                last.values = last.values + values
                last.touched += run.touched
                last.size += run.size
                last.is_spread &= run.is_spread
                self._stats.leaves_merged += 1
            else:
                runs.append(run)
                last = run
        return runs

    def _has_right_size(self, count: int, touched: int, size: int) -> bool:
        """Return whether a leaf is neither to be split nor to be merged, whatever is beside it."""
        limits = self._limits
        return (
            touched * 2 < count
            and count > limits.fewest_entries
            and size * 2 < limits.most_bytes
            and pieces_of(count, touched, size, limits) == 1
        )

    def _write_leaf(
        self, id_: int, leaf: Leaf, keys: list[Key], values: list[Any], touched: int
    ) -> None:
        blob = encode_leaf(keys, values)
        leaf.keys, leaf.values = keys, values
        leaf.size, leaf.used = len(blob), self._tree.tick
        self._changes[self._prefix + numbered(id_)] = blob
        self._stats.bytes_changed += leaf.size * touched // len(keys)

    def _changed(self, leaf: Leaf, touched: list[Key]) -> tuple[list[Key], list[Any]]:
        """Return the entries of a leaf as they are now."""
        data, keys, values = self._map.data, leaf.keys, leaf.values
        if len(touched) * _DENSE < len(keys):
            for key in touched:
                value, position = data[key], bisect_left(keys, key)
                if position < len(keys) and keys[position] == key:
                    if value is None:
                        del keys[position], values[position]
                    else:
                        values[position] = value
                elif value is not None:
                    keys.insert(position, key)
                    values.insert(position, value)
            return keys, values
        if leaf.is_spread and not self._map.fresh and not self._map.removed:
            return keys, list(map(data.__getitem__, keys))
        entries = dict(zip(keys, values, strict=True))
        count = len(entries)
        entries.update(zip(touched, map(data.__getitem__, touched), strict=True))
        if len(entries) > count:
            entries = dict(sorted(entries.items()))
        if self._map.removed:
            entries = {key: value for key, value in entries.items() if value is not None}
        return list(entries), list(entries.values())

    def _pieces(self, run: _Run) -> list[Piece]:
        """Return the leaves that a run becomes."""
        keys, values, limits = run.keys, run.values, self._limits
        if not keys:
            return []
        count = pieces_of(len(keys), run.touched, run.size, limits)
        blob = b"" if count > 1 else encode_leaf(keys, values)
        if len(blob) > limits.most_bytes:
            count = pieces_of(len(keys), run.touched, len(blob), limits)
        pieces: list[Piece] = [(keys, values, blob)]
        if count > 1:
            parts = zip(cut(keys, count), cut(values, count), strict=True)
            pieces = [(some, others, encode_leaf(some, others)) for some, others in parts]
        size = sum(len(piece[2]) for piece in pieces)
        self._stats.bytes_changed += size * run.touched // max(len(keys), run.touched)
        return pieces

    def _placed(self, run: _Run, pieces: list[Piece], old_ids: list[int], low: Key) -> Edit:
        """Give the pieces of a run their numbers; return what that changes in their node."""
        lows: list[Key] = []
        ids: list[int] = []
        for index, piece in enumerate(pieces):
            if index:
                lows.append(separator(pieces[index - 1][0][-1], piece[0][0]))
            else:
                lows.append(piece[0][0] if low is None else low)
            ids.append(old_ids[index] if index < len(old_ids) else self._next_id())
            self._put_leaf(ids[index], piece, is_spread=run.is_spread)
        for id_ in old_ids[len(pieces) :]:
            del self._tree.leaves[id_]
            self._changes[self._prefix + numbered(id_)] = None
        self._stats.leaves_split += max(0, len(pieces) - len(old_ids))
        return run.start, run.end, lows, ids

    def _put_leaf(self, id_: int, piece: Piece, *, is_spread: bool) -> None:
        keys, values, blob = piece
        leaf = self._tree.leaves[id_] = Leaf(keys, values, len(blob), self._tree.tick)
        leaf.is_spread = is_spread
        self._changes[self._prefix + numbered(id_)] = blob

    def _next_id(self) -> int:
        id_ = self._tree.next_id
        self._tree.next_id += 1
        return id_


def _replace(node: Node, edits: list[Edit]) -> None:
    for start, end, lows, ids in reversed(edits):
        node.lows[start:end] = lows
        node.ids[start:end] = ids
