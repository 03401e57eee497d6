"""Every example has the shape that a reader expects, and a feed that repeats itself."""

from __future__ import annotations

import ast
import re
from itertools import islice
from pathlib import Path

import pytest

from headrace.errors import StreamsError
from headrace.examples.catalogue import Example, examples, find_example
from headrace.examples.feeding import Encoding, lines_from_records, records_from_lines
from tests.example_pages import svg_of

every_example = pytest.mark.parametrize("example", examples(), ids=lambda each: each.name)
every_topology = pytest.mark.parametrize(
    "example", [each for each in examples() if each.has_topology], ids=lambda each: each.name
)

LINES = 150
FEW = 300
"""How many records of a feed that may have no end."""


def test_every_folder_is_in_the_catalogue() -> None:
    folders = {path.parent for path in Path(examples()[0].folder.parent).glob("*/__init__.py")}

    assert folders == {each.folder for each in examples()}
    assert find_example("user-views").summary == "Count the views of each user."
    with pytest.raises(StreamsError, match=r"There is no example 'nothing'. .*user-views"):
        find_example("nothing")


@every_example
def test_an_example_has_its_files_and_a_short_program(example: Example) -> None:
    needed = [example.program.name, "feed.py", "test_app.py", "README.md"]

    names = {path.name for path in example.folder.iterdir()}
    assert {*needed} - names == set()
    assert len(example.program.read_text().splitlines()) <= LINES


@every_example
def test_a_file_imports_its_neighbours_so_that_a_copy_can_too(example: Example) -> None:
    for path in example.folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("headrace.examples") for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                assert node.module != example.package, "write `from headrace.examples.x.y import`"


@every_topology
def test_a_feed_repeats_itself_and_fits_the_program(example: Example) -> None:
    module = example.module("feed")
    records = list(islice(module.feed(), FEW))
    encoding = Encoding(example.module("app").app, module.TOPICS)

    assert list(islice(module.feed(), FEW)) == records
    assert records
    assert {record.topic for record in records} <= module.TOPICS.keys()
    assert module.PER_SECOND > 0
    raw = [encoding.raw(record) for record in records]
    again = Encoding(example.module("app").app, module.TOPICS)
    lines = records_from_lines(lines_from_records(records))
    assert [again.raw(record) for record in lines] == raw


@every_example
def test_a_page_tells_the_story_and_what_to_change(example: Example) -> None:
    page = (example.folder / "README.md").read_text()

    assert page.startswith(f"# {example.name}\n")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert {"The original and ours", "A run", "Bad input", "Three things to change"} <= {*headings}
    assert len(re.findall(r"^\d\. ", page.partition("## Three things")[2], re.MULTILINE)) == 3


@every_topology
def test_the_picture_is_the_generated_one(example: Example) -> None:
    assert "![The topology](topology.svg)" in (example.folder / "README.md").read_text()
    picture = (example.folder / "topology.svg").read_text()
    assert picture == svg_of(example), "Run `make fix`."
