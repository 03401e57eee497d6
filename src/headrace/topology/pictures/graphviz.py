"""A topology in Graphviz's language, for ``dot``."""

from __future__ import annotations

from headrace.topology.pictures.picture import Item, Picture, Shape

_SHAPES: dict[Shape, str] = {
    "topic": "shape=box, style=rounded",
    "source": "shape=invhouse",
    "processor": "shape=box",
    "sink": "shape=house",
    "store": "shape=cylinder",
}


def graphviz_from(picture: Picture) -> str:
    """Return the text of a graph."""
    lines = ["digraph topology {", "    rankdir=TB;", '    node [fontname="sans-serif"];']
    lines += [f"    {_item(item)}" for item in picture.items if item.box is None]
    for box, title in picture.boxes.items():
        # Graphviz draws a box only around clusters, which it knows by their name.
        lines += [f"    subgraph cluster_{box} {{", f"        label={_quoted(title)};"]
        lines += [f"        {_item(item)}" for item in picture.items if item.box == box]
        lines.append("    }")
    for arrow in picture.arrows:
        style = " [style=dashed, dir=none]" if arrow.uses else ""
        lines.append(f"    {arrow.start} -> {arrow.end}{style};")
    return "\n".join([*lines, "}"]) + "\n"


def _item(item: Item) -> str:
    label = item.label if item.origin is None else f"{item.label}\n{item.origin}"
    return f"{item.id} [label={_quoted(label)}, {_SHAPES[item.shape]}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
