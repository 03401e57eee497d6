"""Describe errors in sentences and logs, so that no record can forge a line of a log."""

from __future__ import annotations

from headrace.control_characters import escape_controls
from headrace.errors import message_of


def describe_error(error: Exception) -> str:
    """Return an error as part of a sentence: its class and its message, in one line."""
    text = escape_controls(message_of(error), keep="\t")
    name = type(error).__name__
    return f"{name}: {text.rstrip('.')}" if text else name
