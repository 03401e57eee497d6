"""The records of the example: lines of a log, in JSON."""

from __future__ import annotations

from msgspec import Struct, field


class LogEvent(Struct):
    logger_name: str
    browser_hash: str = field(name="browserHash")
    message: str = ""
