"""The architecture page names files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.meta.repository import PACKAGE, ROOT, syntax_of

ROW = re.compile(r"^\|[^|]*\| `(?P<file>[\w/]+\.py)` \| `(?P<name>[\w.]+)` \|", re.MULTILINE)
ROWS = [
    (row["file"], row["name"]) for row in ROW.finditer((ROOT / "docs/architecture.md").read_text())
]


def _has(tree: ast.AST, name: str) -> bool:
    first, _, rest = name.partition(".")
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == first:
            return not rest or _has(node, rest)
    return False


def test_the_page_follows_a_record_through_every_layer() -> None:
    folders = {Path(file).parts[0] for file, _ in ROWS}

    assert folders == {"dsl", "topology", "runtime", "spark", "engine", "processors"}


@pytest.mark.parametrize(("file", "name"), ROWS)
def test_a_name_of_the_page_exists(file: str, name: str) -> None:
    assert (PACKAGE / file).exists()
    assert _has(syntax_of(PACKAGE / file), name)
