"""The inventory names files that exist, and its page is the generated one."""

from __future__ import annotations

from tests.inventory_page import PAGE, page, rows
from tests.meta.repository import ROOT

THINGS = 370
"""How many things the documents name."""


def test_every_thing_has_a_file_that_exists_or_a_reason() -> None:
    found = rows()

    missing = [
        (row.line, path) for row in found for path in row.shown if not (ROOT / path).exists()
    ]
    assert len(found) == THINGS
    assert missing == []
    assert [row.line for row in found if not (row.shown or row.note.endswith("."))] == []


def test_the_page_of_the_inventory_is_the_generated_one() -> None:
    assert PAGE.read_text() == page(), "Run `make fix`."
