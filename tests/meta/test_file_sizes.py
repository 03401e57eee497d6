from __future__ import annotations

import pytest

from tests.meta.repository import PACKAGE, name_of, package_files, python_files

LINES = 600
FILES = 15

# A file or folder may be larger for a reason, written here.
LONGER_FILES = {
    "src/headrace/dsl/kstream.py": (950, "one class, one file, and an example of each method"),
}
FULLER_FOLDERS = {
    "src/headrace/cli": (24, "one file per command, and their options"),
    "src/headrace/dsl": (20, "one file per class that users hold, and one per kind of join"),
    "src/headrace/processors": (30, "one file per operation"),
    "src/headrace/queries": (20, "the instance, and what the packages of queries share"),
    "src/headrace/serdes": (20, "one file per format"),
    "src/headrace/state": (18, "one file per type of store, and what they are made of"),
}


def test_no_file_is_longer_than_its_limit() -> None:
    too_long = {}
    for path in python_files():
        lines = len(path.read_text().splitlines())
        limit, _reason = LONGER_FILES.get(name_of(path), (LINES, ""))
        if lines > limit:
            too_long[name_of(path)] = f"{lines} lines, limit {limit}"

    assert too_long == {}, "Split the file by concept, or give a reason in LONGER_FILES."


def test_no_folder_holds_more_files_than_its_limit() -> None:
    too_full = {}
    for folder in sorted({path.parent for path in package_files()}):
        files = sum(1 for path in folder.glob("*.py") if path.name != "__init__.py")
        limit, _reason = FULLER_FOLDERS.get(name_of(folder), (FILES, ""))
        if files > limit:
            too_full[name_of(folder)] = f"{files} files, limit {limit}"

    assert too_full == {}


@pytest.mark.parametrize("name", [*LONGER_FILES, *FULLER_FOLDERS])
def test_every_exception_is_about_something_that_exists(name: str) -> None:
    assert (PACKAGE.parents[1] / name).exists()
