"""Lists and parses the files of the repository that the house rules are about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"
EXAMPLES = PACKAGE / "examples"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((PACKAGE / "examples").glob("*/README.md")),
]


def name_of(path: Path) -> str:
    """Return the path as a reader of the repository writes it."""
    return path.relative_to(ROOT).as_posix()


@cache
def package_files(*folders: str) -> list[Path]:
    """Return the Python files of the package, or of some of its folders."""
    roots = [PACKAGE / folder for folder in folders] or [PACKAGE]
    return sorted(path for root in roots for path in root.rglob("*.py"))


@cache
def library_files(*folders: str) -> list[Path]:
    """Return the Python files of the package without the programs and tests of its examples."""
    return [path for path in package_files(*folders) if path.parent.parent != EXAMPLES]


@cache
def python_files() -> list[Path]:
    """Return every Python file of the repository that people write."""
    folders = ("src", "tests", "benchmarks", "chaos", "conformance")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def syntax_of(path: Path) -> ast.Module:
    """Return the parsed file."""
    return ast.parse(path.read_text(), filename=str(path))


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of everything that is imported from elsewhere."""
    for node in _nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


@cache
def calls_of(tree: ast.AST) -> tuple[tuple[int, str], ...]:
    """Return the line and the dotted name of everything that is called."""
    calls = (node for node in _nodes_of(tree) if isinstance(node, ast.Call))
    return tuple((call.lineno, ast.unparse(call.func)) for call in calls)


@cache
def _nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))
