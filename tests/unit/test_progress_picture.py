"""The picture of the README shows the progress view."""

from __future__ import annotations

import re
from html import unescape

from tests.progress_picture import PAGE, picture_of
from tests.unit.test_progress_view import SNAPSHOT


def _text_of(svg: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", svg)).split())


def test_a_picture_has_the_text_of_the_view_and_loads_nothing() -> None:
    svg = picture_of(SNAPSHOT)

    assert "batch 812 in 430 ms" in _text_of(svg)
    assert "[red]12.5" in _text_of(svg)
    assert "url(" not in svg.replace("url(#", "")


def test_the_picture_of_the_readme_is_of_the_demo() -> None:
    text = _text_of(PAGE.read_text())

    assert "orders-stream-app" in text
    assert "general-orders-revenue" in text
