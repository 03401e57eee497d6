"""Other addresses in the answers of a Kafka broker: where its clients find the brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

METADATA, FIND_COORDINATOR = 3, 10
"""The requests whose answers have addresses."""
_FLEXIBLE = {METADATA: 9, FIND_COORDINATOR: 3}
"""The first version with compact lengths and tagged fields."""

NewPort: TypeAlias = Callable[[str], Awaitable[int]]
"""Returns the port on loopback that replaces an address."""


async def readdressed(answer: bytes, request: int, version: int, new_port: NewPort) -> bytes:
    """Return an answer, without its size, in which ports on loopback replace all addresses."""
    walk = _Walk(answer, new_port, is_flexible=version >= _FLEXIBLE[request])
    walk.skip(4)  # the number of the request
    walk.skip_tags()
    if request == METADATA:
        walk.skip(4 if version >= 3 else 0)  # how long the client shall wait
        for _ in range(walk.count()):
            await walk.replace_address()
            if version >= 1:
                walk.skip_text()  # the rack
            walk.skip_tags()
    elif version >= 4:
        walk.skip(4)
        for _ in range(walk.count()):
            walk.skip_text()  # the group or transaction
            await walk.replace_address()
            walk.skip(2)
            walk.skip_text()  # the error
            walk.skip_tags()
    else:
        walk.skip(6 if version >= 1 else 2)
        if version >= 1:
            walk.skip_text()  # the error
        await walk.replace_address()
    return walk.finished()


class _Walk:
    """Walks through an answer, and collects it with new addresses."""

    def __init__(self, data: bytes, new_port: NewPort, *, is_flexible: bool) -> None:
        self._data = data
        self._new_port = new_port
        self._is_flexible = is_flexible
        self._at = 0
        self._kept = 0
        self._pieces: list[bytes] = []

    def finished(self) -> bytes:
        return b"".join([*self._pieces, self._data[self._kept :]])

    def skip(self, size: int) -> None:
        self._at += size

    def skip_tags(self) -> None:
        for _ in range(self._varint() if self._is_flexible else 0):
            self._varint()
            self.skip(self._varint())

    def skip_text(self) -> None:
        self.skip(self._text_size())

    def count(self) -> int:
        return self._varint() - 1 if self._is_flexible else self._integer(4)

    async def replace_address(self) -> None:
        self.skip(4)  # the number of the broker
        begin = self._at
        size = self._text_size()
        host = self._data[self._at : self._at + size].decode()
        self.skip(size)
        port = self._integer(4)
        if not host:
            return  # there is no coordinator yet
        new = await self._new_port(f"{host}:{port}")
        length = b"\x0a" if self._is_flexible else b"\0\x09"
        self._pieces += [self._data[self._kept : begin], length, b"127.0.0.1", new.to_bytes(4)]
        self._kept = self._at

    def _text_size(self) -> int:
        size = self._varint() - 1 if self._is_flexible else self._integer(2)
        return max(size, 0)  # -1: there is none

    def _integer(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], signed=True)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
