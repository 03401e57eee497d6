"""The pages about the architecture name files, functions and layers that exist."""

from __future__ import annotations

import ast
import re
import tomllib
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


def _layers_of_contract(name: str) -> list[set[str]]:
    """Return the layers that import-linter checks, without the entry point of ``python -m``."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (each for each in settings["contracts"] if each["name"] == name)
    layers = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    return [layer for layer in layers if layer != {"__main__"}]


def _layers_of_page(page: str, before: str) -> list[set[str]]:
    """Return the layers in the first block behind a text; four spaces begin a remark."""
    _, _, rest = (ROOT / page).read_text().partition(before)
    found = re.search(r"^```(?:text)?\n(.*?)^```", rest, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no block behind {before!r}."
    names = [line.split("    ")[0] for line in found[1].splitlines()]
    return [set(re.findall(r"\w+", layer)) for line in names for layer in line.split(">")]


@pytest.mark.parametrize(
    ("page", "before", "contract"),
    [
        ("CONTRIBUTING.md", "A module may import only", "Layers point downwards"),
        ("docs/architecture.md", "## Layers", "Layers point downwards"),
        ("docs/architecture.md", "Inside `runtime/`", "The layers of the runtime"),
    ],
)
def test_a_page_has_the_layers_that_import_linter_checks(
    page: str, before: str, contract: str
) -> None:
    assert _layers_of_page(page, before) == _layers_of_contract(contract)


def test_the_page_follows_a_record_through_every_layer() -> None:
    folders = {Path(file).parts[0] for file, _ in ROWS}

    assert folders == {"dsl", "topology", "runtime", "spark", "engine", "processors"}


@pytest.mark.parametrize(("file", "name"), ROWS)
def test_a_name_of_the_page_exists(file: str, name: str) -> None:
    assert (PACKAGE / file).exists()
    assert _has(syntax_of(PACKAGE / file), name)
