from __future__ import annotations

import re

import pytest
from headrace_conformance.functions import SEGMENTS
from headrace_conformance.scenarios import FOLDER
from headrace_conformance.two_arguments import COMBINATIONS


def words_of(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)(?:\[?:[^`]*)?`", text))


@pytest.mark.parametrize(
    ("names", "start", "end"),
    [
        (SEGMENTS, "## Functions", "Functions of two arguments"),
        (COMBINATIONS, "Functions of two arguments", "## Processors"),
    ],
)
def test_the_readme_lists_every_function(names: dict[str, object], start: str, end: str) -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    section = text[text.index(start) : text.index(end)]

    assert set(names) <= words_of(section)
