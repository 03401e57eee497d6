"""Writes the pictures of the examples: ``python -m tests.example_pages``, part of ``make fix``."""

from __future__ import annotations

from headrace.config.topology_defaults import topology_defaults
from headrace.examples.catalogue import Example, examples
from headrace.topology.pictures import picture_from, svg_from


def svg_of(example: Example) -> str:
    """Return the picture of the topology of an example."""
    app = example.module("app").app
    return svg_from(picture_from(app.topology.lowered(topology_defaults(app.config)).description))


def main() -> None:
    """Write the picture of each example."""
    for example in examples():
        if example.has_topology:
            (example.folder / "topology.svg").write_text(svg_of(example))


if __name__ == "__main__":
    main()
