"""Writes the pictures and transcripts of the examples: ``python -m tests.example_pages``.

A block ``console`` of a page begins with ``$ headrace …``; its output follows. ``make fix`` runs
this.
"""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from headrace.cli.commands import app as commands
from headrace.config.topology_defaults import topology_defaults
from headrace.examples.catalogue import Example, examples
from headrace.topology.pictures import picture_from, svg_from

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def svg_of(example: Example) -> str:
    """Return the picture of the topology of an example."""
    app = example.module("app").app
    return svg_from(picture_from(app.topology.lowered(topology_defaults(app.config)).description))


def page_of(path: Path) -> str:
    """Return a page with the output of the commands in its blocks ``console``."""
    return CONSOLE.sub(lambda block: f"```console\n{_transcript(block[1])}```", path.read_text())


def _transcript(block: str) -> str:
    done = []
    for line in block.splitlines():
        if line.startswith("$ headrace "):
            words = line.removeprefix("$ headrace ").split()
            result = CliRunner().invoke(commands, words, prog_name="headrace")
            done += [line, result.output.rstrip()]
    return "\n".join([*done, ""])


def main() -> None:
    """Write the picture and the transcripts of each example."""
    for example in examples():
        if example.has_topology:
            (example.folder / "topology.svg").write_text(svg_of(example))
        page = example.folder / "README.md"
        page.write_text(page_of(page))


if __name__ == "__main__":
    main()
