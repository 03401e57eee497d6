"""A topology as a Mermaid flowchart, which many pages and editors draw."""

from __future__ import annotations

from headrace.topology.pictures.picture import Item, Picture, Shape

_SHAPES: dict[Shape, tuple[str, str]] = {
    "topic": ("([", "])"),
    "source": ("[/", "\\]"),
    "processor": ("[", "]"),
    "sink": ("[\\", "/]"),
    "store": ("[(", ")]"),
}


def mermaid_from(picture: Picture) -> str:
    """Return the text of a flowchart."""
    lines = ["flowchart TD"]
    lines += [f"    {_item(item)}" for item in picture.items if item.box is None]
    for box, title in picture.boxes.items():
        lines.append(f'    subgraph box{box}["{_quoted(title)}"]')
        lines += [f"        {_item(item)}" for item in picture.items if item.box == box]
        lines.append("    end")
    for arrow in picture.arrows:
        lines.append(f"    {arrow.start} {'-.-' if arrow.uses else '-->'} {arrow.end}")
    return "\n".join(lines) + "\n"


def _item(item: Item) -> str:
    before, after = _SHAPES[item.shape]
    origin = "" if item.origin is None else f"<br/>{_quoted(item.origin)}"
    return f'{item.id}{before}"{_quoted(item.label)}{origin}"{after}'


def _quoted(text: str) -> str:
    """Return text that Mermaid neither ends a label at nor takes for markup."""
    marks = {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\n": " "}
    return "".join(marks.get(character, character) for character in text)
