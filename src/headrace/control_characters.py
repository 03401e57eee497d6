"""Escapes control characters of records, before a terminal or a log gets them."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: they move the cursor, or begin an escape sequence
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi: they reorder the text around them
    "\u2028\u2029\ud800-\udfff]"  # line separators; halves of pairs, which UTF-8 cannot write
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str, keep: str = "") -> str:
    """Return a text with its control characters as escapes; those of ``keep`` stay."""
    return _UNSAFE.sub(lambda match: _escaped(match[0], keep), text)


def _escaped(character: str, keep: str) -> str:
    if character in keep:
        return character
    return _SHORT.get(character, f"\\u{ord(character):04x}")
