from __future__ import annotations

import pytest

from headrace.control_characters import escape_controls


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain ünï ✓ 漢字", "plain ünï ✓ 漢字"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("\x00\x7f", "\\u0000\\u007f"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
        ("one\r\ntwo\tthree\u2028", "one\\r\\ntwo\\tthree\\u2028"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, escaped: str) -> None:
    assert escape_controls(text) == escaped


def test_chosen_characters_stay() -> None:
    assert escape_controls("a\tb\nc\x1b", keep="\t\n") == "a\tb\nc\\u001b"
