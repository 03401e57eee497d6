"""Writes the page of the inventory: ``python -m tests.inventory_page``; ``make fix`` runs this.

`docs/inventory.tsv` has a row for each thing that the documents name which teach Kafka Streams: the
document and its line, the thing, the files that show it, and a note.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_DOCS = Path(__file__).parents[1] / "docs"
PAGE = _DOCS / "inventory.md"
_TABLE = _DOCS / "inventory.tsv"
_START = """# Inventory

Five documents teach Kafka Streams: two talks (000, 001), an article (002), a course (003) and a
talk about queries (004). This page lists everything that they name, with the file that shows it
here, or the reason why nothing does. It is generated from `docs/inventory.tsv`; a test checks that
each file exists.
"""


class Row(NamedTuple):
    """One thing that a document names."""

    line: str
    """The document and the line in it."""
    item: str
    shown: tuple[str, ...]
    """The files or folders that show it, from the root of the repository."""
    note: str


def rows() -> list[Row]:
    """Return all rows, in the order of the documents."""
    lines = _TABLE.read_text().splitlines()[1:]
    parts = [line.split("\t") for line in lines]
    return [
        Row(line, item, tuple(filter(None, shown.split(", "))), note)
        for line, item, shown, note in parts
    ]


def page() -> str:
    """Return the page."""
    found = rows()
    open_ = sum(row.note.startswith("Not yet") for row in found)
    absent = sum(not row.shown for row in found if not row.note.startswith("Not yet"))
    shown = len(found) - open_ - absent
    counts = f"{shown} of {len(found)} things are shown, {open_} are not yet, {absent} will not be."
    texts = [_START, counts]
    for document in sorted({row.line[:3] for row in found}):
        texts += [
            f"\n## Document {document}\n",
            "| Line | What | Shown by |",
            "| --- | --- | --- |",
        ]
        texts += [_line(row) for row in found if row.line.startswith(document)]
    return "\n".join([*texts, ""])


def _line(row: Row) -> str:
    item = row.item.replace("|", "\\|").replace("<", "&lt;")
    files = ", ".join(f"`{path}`" for path in row.shown)
    shown = ". ".join(filter(None, [files, row.note]))
    return f"| {row.line[4:]} | {item} | {shown} |"


if __name__ == "__main__":
    PAGE.write_text(page())
