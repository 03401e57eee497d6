"""House rules on the names of files and folders."""

from __future__ import annotations

import sys

from tests.meta.repository import PACKAGE, name_of, package_files

SAYS_NOTHING = {"utils", "util", "helpers", "common", "core", "internals", "types", "misc"}
DUNDER = {"__init__", "__main__"}


def test_private_is_a_name_never_a_file_or_folder() -> None:
    parts = {part for path in package_files() for part in path.relative_to(PACKAGE).parts}

    assert [part for part in parts if part.startswith("_") and part[:-3] not in DUNDER] == []


def test_every_file_and_folder_says_what_is_inside() -> None:
    names = {
        part.removesuffix(".py")
        for path in package_files()
        for part in path.relative_to(PACKAGE).parts
    }

    assert names & SAYS_NOTHING == set()


def test_no_module_shadows_the_standard_library() -> None:
    shadows = [name_of(p) for p in package_files() if p.stem in sys.stdlib_module_names]

    assert shadows == []


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in package_files()}

    assert [name_of(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []
