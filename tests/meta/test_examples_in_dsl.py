"""Every method of the DSL that users call has an example; `tests/test_documentation.py` runs it."""

from __future__ import annotations

import ast
import re

from tests.meta.repository import package_files, syntax_of

INTERNAL = {
    "GraphBuilder": "users hold a StreamsBuilder",
    "KGroupedStream.burn_store_name": "the windowed streams call it",
    "CogroupedKStream.add": "the windowed cogrouped streams call it",
}
"""Classes and methods that only the package itself calls."""


def test_every_public_method_of_the_dsl_has_an_example() -> None:
    public = {
        name: method
        for name, method in _methods().items()
        if INTERNAL.keys().isdisjoint({name, name.split(".")[0]})
    }

    assert len(public) > 60
    assert [name for name, method in public.items() if not _has_example(method)] == []


def test_every_exception_is_about_something_that_exists() -> None:
    existing = {part for name in _methods() for part in (name, name.split(".")[0])}

    assert INTERNAL.keys() - existing == set()


def test_the_check_finds_a_method_without_an_example() -> None:
    docstring = '"""Count the records.\n\n    {}\n    """'
    without = (
        "Nothing.",
        ">>> count()",
        "Example:\n        count()",
        "Example:\n\n    >>> count()",
    )

    assert [text for text in without if _has_example(_parsed(docstring.format(text)))] == []
    assert not _has_example(_parsed("..."))
    assert _has_example(_parsed(docstring.format("Example:\n        >>> count()")))


def _methods() -> dict[str, ast.FunctionDef]:
    """Return the methods of the DSL by class and name, without private ones and properties."""
    return {
        f"{class_.name}.{method.name}": method
        for path in package_files("dsl")
        for class_ in syntax_of(path).body
        if isinstance(class_, ast.ClassDef) and not class_.name.startswith("_")
        for method in class_.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
        if not {"overload", "property"} & {ast.unparse(each) for each in method.decorator_list}
    }


def _has_example(method: ast.FunctionDef) -> bool:
    section = re.search(r"^Example:\n((?: .*\n?)+)", ast.get_docstring(method) or "", re.MULTILINE)
    return section is not None and ">>> " in section[1]


def _parsed(body: str) -> ast.FunctionDef:
    (method,) = ast.parse(f"def count(self):\n    {body}").body
    assert isinstance(method, ast.FunctionDef)
    return method
