"""A greeting, and the serde that reads and writes it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headrace import Serdes


class Greeting(msgspec.Struct, frozen=True, rename="camel"):
    """A message and the local time of its sender, which has no time zone."""

    message: str
    time_stamp: datetime


def read_greeting(data: bytes) -> Greeting:
    """Return the greeting in ``data``: the deserializer of the custom serde."""
    return msgspec.json.decode(data, type=Greeting)


def write_greeting(greeting: Greeting) -> bytes:
    """Return JSON with all six digits of the timestamp: the serializer of the custom serde."""
    if not greeting.message.isprintable():
        msg = "The message has control characters, which no screen shows."
        raise ValueError(msg)
    time_stamp = greeting.time_stamp.isoformat(timespec="microseconds")
    return msgspec.json.encode({"message": greeting.message, "timeStamp": time_stamp})


greeting_serde = Serdes.of(write_greeting, read_greeting)
