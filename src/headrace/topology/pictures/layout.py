"""Lays out the items of a picture: rows from top to bottom, one box per subtopology.

Records flow downwards. Inside a box a step is one row below the last of its parents, and sinks
stand in the last row. Boxes that have no row in common share a lane; the others stand beside each
other. An arrow that crosses rows has coordinates in each of them, so that it runs around what is
there::

    topic            row 0   lane 0
    ┌ box 0 ───────┐
    │ source       │ row 1
    │ filter  │    │ row 2   the bar is the way of the arrow source → sink
    │ sink         │ row 3
    └──────────────┘
    topic            row 4
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import pairwise

from headrace.topology.pictures.picture import Arrow, Item, Picture

_CHARACTER = 7.3
"""The width of a character of the font the picture asks for; wide enough for most others."""
_PADDING = 26
_MIN_WIDTH = 70
SLANT = 12
"""How much narrower a source or a sink is on one side, at each end."""
HEIGHT = 34
"""The height of an item."""
_TALL = 48
"""The height of an item with a second line."""
_GAP = 26
_ROW_GAP = 44
_WAYPOINT_WIDTH = 10
_MARGIN = 20
_BOX_PADDING = 16
_BOX_TITLE = 22
_SWEEPS = 4
_STRAIGHTENINGS = 24


@dataclass
class Coordinates:
    """The box of an item: its middle and its size. Waypoints of arrows have no item."""

    item: Item | None
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True)
class Frame:
    """The rectangle around a subtopology."""

    title: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Layout:
    """A picture with coordinates for everything."""

    width: float
    height: float
    coordinates: Mapping[str, Coordinates]
    frames: tuple[Frame, ...]
    paths: tuple[tuple[Arrow, tuple[Coordinates, ...]], ...]
    """Each arrow with the coordinates it runs through, its ends included."""


@dataclass
class _Lane:
    """Boxes below each other, with the topics above and between them."""

    taken: set[int] = field(default_factory=set)
    rows: dict[int, list[str]] = field(default_factory=dict)
    left: float = 0.0
    width: float = 0.0


def lay_out(picture: Picture) -> Layout:
    """Return coordinates for every item. The same picture always gives the same coordinates."""
    return _Drafting(picture).layout()


class _Drafting:
    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._items = {item.id: item for item in picture.items}
        self._coordinates = {item.id: _coordinates_of(item) for item in picture.items}
        self._flows = [arrow for arrow in picture.arrows if not arrow.uses]
        self._rows: dict[str, int] = {}
        self._ways: dict[Arrow, list[str]] = {}
        self._stores: dict[str, list[str]] = {}
        self._spans: dict[int, range] = {}
        self._lanes: dict[int, _Lane] = {}

    def layout(self) -> Layout:
        self._set_rows()
        lanes = self._fill_lanes()
        near = self._neighbours()
        for _ in range(_SWEEPS):
            self._sweep(lanes, near)
        self._spread(lanes)
        for _ in range(_STRAIGHTENINGS):
            for lane in lanes:
                self._straighten(lane, near)
        width, height = self._set_heights(lanes)
        paths = [
            (arrow, tuple(self._coordinates[name] for name in self._stops(arrow)))
            for arrow in self._picture.arrows
        ]
        return Layout(width, height, self._coordinates, tuple(self._frames()), tuple(paths))

    def _set_rows(self) -> None:
        """Give every step, topic and store a row."""
        inside = {box: self._rows_inside(box) for box in self._picture.boxes}
        inputs, outputs = self._topics_of_boxes()
        starts: dict[int, int] = {}
        for box in _in_order_of_flow(inputs, outputs):
            above = [
                starts[writer] + max(inside[writer].values(), default=0) + 1
                for topic in inputs[box]
                for writer in starts
                if topic in outputs[writer] and writer != box
            ]
            starts[box] = max(above, default=0) + 1
            self._rows |= {name: row + starts[box] for name, row in inside[box].items()}
            last = starts[box] + max(inside[box].values(), default=0)
            self._spans[box] = range(starts[box], last + 1)
        for topic in (item.id for item in self._picture.items if item.shape == "topic"):
            read = [starts[box] - 1 for box in inputs if topic in inputs[box]]
            written = [self._spans[box].stop for box in outputs if topic in outputs[box]]
            self._rows[topic] = max([*written, *([min(read)] if read else [])])

    def _rows_inside(self, box: int) -> dict[str, int]:
        """Return the row of each step of a box, counted from its first."""
        steps = [
            item.id for item in self._picture.items if item.box == box and item.shape != "store"
        ]
        parents: dict[str, list[str]] = {step: [] for step in steps}
        for arrow in self._flows:
            if arrow.start in parents and arrow.end in parents:
                parents[arrow.end].append(arrow.start)
        rows: dict[str, int] = {}
        for step in TopologicalSorter(parents).static_order():
            rows[step] = max((rows[parent] + 1 for parent in parents[step]), default=0)
        last = max(rows.values(), default=0)
        sinks = {step: last for step in steps if self._items[step].shape == "sink"}
        return {step: sinks.get(step, rows[step]) for step in steps}

    def _topics_of_boxes(self) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
        inputs: dict[int, set[str]] = {box: set() for box in self._picture.boxes}
        outputs: dict[int, set[str]] = {box: set() for box in self._picture.boxes}
        for arrow in self._flows:
            start, end = self._items[arrow.start], self._items[arrow.end]
            if start.shape == "topic" and end.box is not None:
                inputs[end.box].add(start.id)
            elif end.shape == "topic" and start.box is not None:
                outputs[start.box].add(end.id)
        return inputs, outputs

    def _fill_lanes(self) -> list[_Lane]:
        """Put boxes into lanes, then everything into the rows of its lane."""
        lanes: list[_Lane] = []
        for box, span in self._spans.items():
            # The rows of its topics too, so that no topic of another box stands between.
            wanted = set(range(span.start - 1, span.stop + 1))
            lane = next((lane for lane in lanes if not lane.taken & set(span)), None)
            if lane is None:
                lane = _Lane()
                lanes.append(lane)
            lane.taken |= wanted - {span.start - 1, span.stop}
            self._lanes[box] = lane
        for arrow in self._picture.arrows:
            if arrow.uses and arrow.end not in self._rows:
                self._rows[arrow.end] = self._rows[arrow.start]
                self._stores.setdefault(arrow.start, []).append(arrow.end)
        for item in self._picture.items:
            if item.shape != "store":
                lane = self._lane_of(item)
                lane.rows.setdefault(self._rows[item.id], []).append(item.id)
        for arrow in self._flows:
            self._add_waypoints(arrow)
        return lanes

    def _lane_of(self, item: Item) -> _Lane:
        if item.box is not None:
            return self._lanes[item.box]
        near = [self._items[a.end].box for a in self._flows if a.start == item.id]
        near += [self._items[a.start].box for a in self._flows if a.end == item.id]
        return self._lanes[next(box for box in near if box is not None)]

    def _add_waypoints(self, arrow: Arrow) -> None:
        start, end = self._items[arrow.start], self._items[arrow.end]
        if start.box is None or start.box != end.box:
            return
        names = []
        for row in range(self._rows[start.id] + 1, self._rows[end.id]):
            name = f"{start.id}>{end.id}@{row}"
            self._coordinates[name] = Coordinates(None, _WAYPOINT_WIDTH, 0)
            self._lanes[start.box].rows[row].append(name)
            names.append(name)
        self._ways[arrow] = names

    def _stops(self, arrow: Arrow) -> list[str]:
        return [arrow.start, *self._ways.get(arrow, ()), arrow.end]

    def _neighbours(self) -> dict[str, list[str]]:
        near: dict[str, list[str]] = {}
        for arrow in self._flows:
            for one, other in pairwise(self._stops(arrow)):
                near.setdefault(one, []).append(other)
                near.setdefault(other, []).append(one)
        return near

    def _middle(self, name: str, near: Mapping[str, list[str]]) -> float:
        around = [self._coordinates[other].x for other in near.get(name, ())]
        return sum(around) / len(around) if around else self._coordinates[name].x

    def _sweep(self, lanes: Iterable[_Lane], near: Mapping[str, list[str]]) -> None:
        """Order each row by where its neighbours above and below are."""
        self._spread(lanes)
        for lane in lanes:
            for row in lane.rows.values():
                row.sort(key=lambda name: self._middle(name, near))
            self._spread(lanes)

    def _straighten(self, lane: _Lane, near: Mapping[str, list[str]]) -> None:
        """Move each row's items towards their neighbours, in their order and within the lane."""
        for row in (*sorted(lane.rows), *sorted(lane.rows, reverse=True)):
            names = lane.rows[row]
            widths = [self._width(self._with_stores([name])) + _GAP for name in names]
            before = [sum(widths[:at]) for at in range(len(names))]
            wanted = [
                self._middle(name, near) - self._coordinates[name].width / 2 - offset
                for name, offset in zip(names, before, strict=True)
            ]
            right = lane.left + lane.width - _BOX_PADDING - (sum(widths) - _GAP)
            for name, offset, left in zip(names, before, _rising(wanted), strict=True):
                self._put(name, offset + min(max(left, lane.left + _BOX_PADDING), right))

    def _put(self, name: str, left: float) -> None:
        for item in self._with_stores([name]):
            self._coordinates[item].x = left + self._coordinates[item].width / 2
            left += self._coordinates[item].width + _GAP

    def _spread(self, lanes: Iterable[_Lane]) -> None:
        """Set x: rows are centred in their lane, lanes stand side by side."""
        left = float(_MARGIN)
        for lane in lanes:
            widths = {row: self._width(self._with_stores(lane.rows[row])) for row in lane.rows}
            lane.left, lane.width = left, max(widths.values(), default=0.0) + 2 * _BOX_PADDING
            for row, names in lane.rows.items():
                x = left + (lane.width - widths[row]) / 2
                for name in names:
                    self._put(name, x)
                    x += self._width(self._with_stores([name])) + _GAP
            left += lane.width + _GAP

    def _with_stores(self, names: Iterable[str]) -> list[str]:
        """Return the names of a row with each store beside the first step that uses it."""
        return [item for name in names for item in (name, *self._stores.get(name, ()))]

    def _width(self, names: list[str]) -> float:
        return sum(self._coordinates[name].width for name in names) + _GAP * (len(names) - 1)

    def _set_heights(self, lanes: list[_Lane]) -> tuple[float, float]:
        """Set y, and return the size of the whole."""
        top = float(_MARGIN)
        rows = sorted({row for lane in lanes for row in lane.rows})
        for row in rows:
            names = [n for lane in lanes for n in self._with_stores(lane.rows.get(row, ()))]
            # A box needs room for its title above its first row.
            if any(span.start == row for span in self._spans.values()):
                top += _BOX_TITLE
            height = max((self._coordinates[name].height for name in names), default=HEIGHT)
            for name in names:
                self._coordinates[name].y = top + height / 2
            top += height + _ROW_GAP
        width = sum(lane.width for lane in lanes) + _GAP * max(0, len(lanes) - 1) + 2 * _MARGIN
        return width, top - _ROW_GAP + _BOX_PADDING + _MARGIN

    def _frames(self) -> Iterable[Frame]:
        for box, title in self._picture.boxes.items():
            names = [item.id for item in self._picture.items if item.box == box]
            names += [n for arrow, way in self._ways.items() if arrow.start in names for n in way]
            inside = [self._coordinates[name] for name in names]
            yield Frame(
                title,
                left=min(p.x - p.width / 2 for p in inside) - _BOX_PADDING,
                top=min(p.y - p.height / 2 for p in inside) - _BOX_TITLE,
                right=max(p.x + p.width / 2 for p in inside) + _BOX_PADDING,
                bottom=max(p.y + p.height / 2 for p in inside) + _BOX_PADDING,
            )


def _coordinates_of(item: Item) -> Coordinates:
    longest = max(len(item.label), len(item.origin or ""))
    width = max(_MIN_WIDTH, longest * _CHARACTER + _PADDING)
    if item.shape in ("source", "sink"):
        width += SLANT
    return Coordinates(item, width, HEIGHT if item.origin is None else _TALL)


def _rising(wanted: Iterable[float]) -> list[float]:
    """Return the rising numbers that are nearest to the wanted ones (least squares)."""
    pools: list[tuple[float, int]] = []
    for number in wanted:
        pool = (number, 1)
        # Neighbours in the wrong order meet at their mean.
        while pools and pools[-1][0] > pool[0]:
            mean, count = pools.pop()
            both = count + pool[1]
            pool = ((mean * count + pool[0] * pool[1]) / both, both)
        pools.append(pool)
    return [mean for mean, count in pools for _ in range(count)]


def _in_order_of_flow(inputs: Mapping[int, set[str]], outputs: Mapping[int, set[str]]) -> list[int]:
    """Return the boxes with writers before readers, as far as there is no circle."""
    ordered: list[int] = []
    open_boxes: set[int] = set()

    def visit(box: int) -> None:
        if box in open_boxes or box in ordered:
            return
        open_boxes.add(box)
        for writer in outputs:
            if outputs[writer] & inputs[box]:
                visit(writer)
        ordered.append(box)

    for box in inputs:
        visit(box)
    return ordered
