from __future__ import annotations

import inspect
import re

import headrace
from headrace import errors


def test_the_error_tree_in_the_docstring_is_the_real_one() -> None:
    drawn = dict(_parents_drawn(errors.__doc__ or ""))

    classes = [class_ for _, class_ in inspect.getmembers(errors, inspect.isclass)]
    defined = {
        class_.__name__: class_.__base__.__name__
        for class_ in classes
        if issubclass(class_, Exception) and class_.__base__ is not None
    }
    assert drawn == defined


def test_every_error_is_exported() -> None:
    names = [name for name in vars(errors) if name.endswith("Error")]

    assert [name for name in names if name not in headrace.__all__] == []


def _parents_drawn(text: str) -> list[tuple[str, str]]:
    """Return each error of the drawing with the one it hangs from."""
    parents: list[tuple[str, str]] = []
    path: list[str] = []
    for prefix, name in re.findall(r"^ {4}([│├└─ ]*)(\w+Error)\b", text, re.MULTILINE):
        depth = len(prefix) // 4
        parents.append((name, path[depth - 1] if depth else "Exception"))
        path[depth:] = [name]
    return parents
