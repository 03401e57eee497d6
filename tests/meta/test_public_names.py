"""The public names are written down in ``public_names.txt``; changing one is a decision."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from tests.meta.repository import package_files, syntax_of

FUNCTIONS = (FunctionType, property, classmethod, staticmethod)
LIST = Path(__file__).with_name("public_names.txt")


def _written_names() -> dict[str, list[str]]:
    """Return the list: a module at the margin, its names indented below."""
    modules: dict[str, list[str]] = {}
    for line in LIST.read_text().splitlines():
        if line.startswith(" "):
            modules[list(modules)[-1]].append(line.strip())
        elif line:
            modules[line] = []
    return modules


WRITTEN = _written_names()


def _exported(module: str) -> list[tuple[str, object]]:
    imported: ModuleType = importlib.import_module(module)
    return [(name, getattr(imported, name)) for name in imported.__all__]


@pytest.mark.parametrize("module", WRITTEN)
def test_the_public_names_are_the_written_ones(module: str) -> None:
    names = [name for name, _ in _exported(module)]

    assert sorted(names) == WRITTEN[module], f"If this is meant, change {LIST.name} too."


@pytest.mark.parametrize("module", WRITTEN)
def test_every_public_name_is_documented_down_to_its_methods(module: str) -> None:
    contracts = _contracts()
    silent = [
        name
        for name, documented in _documented(module)
        if not inspect.getdoc(documented) and name.partition(".")[2] not in contracts
    ]

    assert silent == []


def _documented(module: str) -> Iterator[tuple[str, object]]:
    """Yield the classes and functions of a module, and the public methods of the classes."""
    for name, exported in _exported(module):
        if inspect.isclass(exported) or inspect.isroutine(exported):
            yield name, exported
        if inspect.isclass(exported):
            for attribute, member in vars(exported).items():
                if isinstance(member, FUNCTIONS) and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", getattr(exported, attribute)


def _contracts() -> set[str]:
    """Return the methods that a protocol documents: what implements them stays silent."""
    return {
        method.name
        for path in package_files()
        for node in ast.walk(syntax_of(path))
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in node.bases)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and ast.get_docstring(method)
    }
