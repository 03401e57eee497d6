"""The records of the example."""

from __future__ import annotations

from msgspec import Struct


class View(Struct):
    user: str
    page: str
