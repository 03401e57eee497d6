"""The pages name files, commands and names of the package that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import headrace
import headrace.testing
from tests.meta.repository import PACKAGE, PAGES, ROOT, name_of

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)

OF_USERS = {"headrace.toml", "json.py"}
"""Files of users, not of the repository."""
FOLDERS = {path.name for path in [*ROOT.iterdir(), *PACKAGE.iterdir()] if path.is_dir()}


@every_page
def test_a_page_names_files_that_exist(page: Path) -> None:
    named = re.findall(r"`([\w.-]+/[\w./-]*|\w+\.(?:py|toml|md|lock))`", page.read_text())

    missing = [
        name
        for name in named
        if name.split("/")[0] in FOLDERS or "/" not in name
        if name not in OF_USERS
        if not any((root / name).exists() for root in (ROOT, PACKAGE, PACKAGE.parent, page.parent))
    ]
    assert missing == []


@every_page
def test_a_page_links_to_files_that_exist(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


@every_page
def test_a_page_names_commands_that_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE))

    assert named - targets == set()


def test_contributing_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)) - {"help"}
    listed = re.findall(r"^\| `make ([a-z-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)

    assert sorted(listed) == sorted(targets)


def test_the_readme_counts_the_faults_of_the_ledger() -> None:
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs/reliability.md").read_text()

    assert re.findall(r"(\d+) injected faults", readme) == re.findall(
        r"^(\d+) faults in", page, re.M
    )


@every_page
def test_a_page_names_parts_of_the_package_that_exist(page: Path) -> None:
    named = set(re.findall(r"`(headrace(?:\.\w+)+)`", page.read_text())) - OF_USERS

    assert [name for name in sorted(named) if not _resolves(name)] == []


def test_the_first_example_of_the_readme_has_at_most_30_lines() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)

    assert blocks, "README.md has no example."
    assert len(blocks[0].splitlines()) <= 30


def test_every_documentation_page_can_be_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "index.md"]

    assert [page for page in pages if f"({page})" not in index] == []


def _java_table() -> dict[str, set[str]]:
    """Return the Python names of each class that has a table in "Coming from Java"."""
    page = (ROOT / "docs" / "coming-from-java.md").read_text()
    _, *sections = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return {
        name: set(re.findall(r"^\|.*\| `(\w+)[^|]*\|$", text, re.MULTILINE))
        for name, text in zip(sections[::2], sections[1::2], strict=True)
        if name.isidentifier()
    }


# Methods that only other parts of Headrace call.
PLUMBING = {
    "KGroupedStream": {"burn_store_name"},
    "Topology": {"built_with", "from_graph", "lowered"},
    "TopologyTestDriver": {"pipe_raw"},
}


@pytest.mark.parametrize("name", _java_table())
def test_the_table_for_java_programmers_has_every_method_and_no_other(name: str) -> None:
    home = headrace.testing if hasattr(headrace.testing, name) else headrace
    class_ = getattr(home, name)
    written = _java_table()[name]

    fields = set(getattr(class_, "__dataclass_fields__", ()))
    methods = {attribute for attribute in dir(class_) if not attribute.startswith("_")} - fields
    assert methods - PLUMBING.get(name, set()) - written == set()
    assert written - methods - fields == set()


def _resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or a name in one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return hasattr(importlib.import_module(module), attribute) if module else False
    return True
