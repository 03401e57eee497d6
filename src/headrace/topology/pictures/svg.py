"""A topology as SVG: drawn here, without a program, a script or a font from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from headrace.topology.pictures.layout import SLANT, Coordinates, Frame, Layout, lay_out
from headrace.topology.pictures.picture import Arrow, Item, Picture, Shape

_STYLE = (
    "text{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px;fill:#1b2733}"
    ".origin{font-size:10px;fill:#52606d}"
    ".box{fill:#f5f7fa;stroke:#9aa5b1}.box-title{font-weight:bold}"
    ".topic{fill:#fff3c4;stroke:#b44d12}.source,.sink{fill:#d8f0e0;stroke:#1f7a4d}"
    ".processor{fill:#ffffff;stroke:#334e68}.store{fill:#e0e8f9;stroke:#35469c}"
    ".flow{fill:none;stroke:#52606d;stroke-width:1.4}"
    ".uses{fill:none;stroke:#35469c;stroke-dasharray:4 3}"
)
_RIM = 5


def svg_from(picture: Picture) -> str:
    """Return an SVG document. Every item says in its ``<title>`` what it is."""
    layout = lay_out(picture)
    size = f"{layout.width:.0f} {layout.height:.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {size}" '
            f'width="{layout.width:.0f}" height="{layout.height:.0f}">',
            f"<title>Topology of {len(picture.boxes)} subtopologies</title>",
            f"<desc>{escape(_in_words(picture))}</desc>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="headrace-arrow" viewBox="0 0 8 8" refX="8" refY="4" '
            'markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#52606d"/></marker></defs>',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *_drawn(layout),
            "</svg>\n",
        ]
    )


def _drawn(layout: Layout) -> Iterator[str]:
    for frame in layout.frames:
        yield _frame(frame)
    for arrow, coordinates in layout.paths:
        yield _arrow(arrow, coordinates)
    for at in layout.coordinates.values():
        if at.item is not None:
            yield _item(at.item, at)


def _in_words(picture: Picture) -> str:
    """Return what the picture shows, for those who cannot see it."""
    labels = {item.id: item.label for item in picture.items}
    return "; ".join(
        f"{labels[arrow.start]} {'uses' if arrow.uses else 'to'} {labels[arrow.end]}"
        for arrow in picture.arrows
    )


def _frame(frame: Frame) -> str:
    width, height = frame.right - frame.left, frame.bottom - frame.top
    return (
        f'<g><rect class="box" x="{frame.left:.1f}" y="{frame.top:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="6"/><text class="box-title" x="{frame.left + 8:.1f}" '
        f'y="{frame.top + 15:.1f}">{escape(frame.title)}</text></g>'
    )


def _arrow(arrow: Arrow, coordinates: tuple[Coordinates, ...]) -> str:
    start, end = coordinates[0], coordinates[-1]
    if arrow.uses:
        return f'<path class="uses" d="{_beside(start, end)}"/>'
    points = [(start.x, start.y + start.height / 2)]
    points += [(at.x, at.y) for at in coordinates[1:-1]]
    points.append((end.x, end.y - end.height / 2))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (y2 - y1) / 2
        path += f" C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    return f'<path class="flow" marker-end="url(#headrace-arrow)" d="{path}"/>'


def _beside(step: Coordinates, store: Coordinates) -> str:
    """Return the line between a step and a store, from border to border."""
    if step.y == store.y:
        side = 1 if store.x > step.x else -1
        start, end = step.x + side * step.width / 2, store.x - side * store.width / 2
        return f"M{start:.1f} {step.y:.1f} L{end:.1f} {store.y:.1f}"
    side = 1 if store.y > step.y else -1
    top, bottom = step.y + side * step.height / 2, store.y - side * store.height / 2
    return f"M{step.x:.1f} {top:.1f} L{store.x:.1f} {bottom:.1f}"


def _item(item: Item, at: Coordinates) -> str:
    what = f"{item.shape} {item.label}" + (f", {item.origin}" if item.origin else "")
    first = at.y + 4 if item.origin is None else at.y - 3
    lines = f'<text x="{at.x:.1f}" y="{first:.1f}" text-anchor="middle">{escape(item.label)}'
    lines += "</text>"
    if item.origin is not None:
        lines += (
            f'<text class="origin" x="{at.x:.1f}" y="{at.y + 13:.1f}" '
            f'text-anchor="middle">{escape(item.origin)}</text>'
        )
    shape = _shape(item.shape, at)
    return f'<g class="item"><title>{escape(what)}</title>{shape}{lines}</g>'


def _shape(shape: Shape, at: Coordinates) -> str:
    left, right = at.x - at.width / 2, at.x + at.width / 2
    top, bottom = at.y - at.height / 2, at.y + at.height / 2
    if shape in ("topic", "processor"):
        radius = at.height / 2 if shape == "topic" else 3
        return (
            f'<rect class="{shape}" x="{left:.1f}" y="{top:.1f}" width="{at.width:.1f}" '
            f'height="{at.height:.1f}" rx="{radius:.1f}"/>'
        )
    if shape == "store":
        half = at.width / 2
        return (
            f'<path class="store" d="M{left:.1f} {top + _RIM:.1f} '
            f"a{half:.1f} {_RIM} 0 0 1 {at.width:.1f} 0 V{bottom - _RIM:.1f} "
            f"a{half:.1f} {_RIM} 0 0 1 {-at.width:.1f} 0 z "
            f'M{left:.1f} {top + _RIM:.1f} a{half:.1f} {_RIM} 0 0 0 {at.width:.1f} 0"/>'
        )
    # A source opens upwards, to its topics; a sink downwards.
    above, below = (0, SLANT) if shape == "source" else (SLANT, 0)
    return (
        f'<polygon class="{shape}" points="{left + above:.1f},{top:.1f} {right - above:.1f},'
        f'{top:.1f} {right - below:.1f},{bottom:.1f} {left + below:.1f},{bottom:.1f}"/>'
    )
