"""The bytes of a shard on its way: frames of MessagePack, each behind its length.

The first frame is a `ShardHeader`, the last is the number of entries. Those between have the
entries in the order of their keys, which are the keys of the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

import msgspec

from headrace.queries.copy.actions import CopyIdentity, ShardState

FORMAT = 1
MOST_BYTES = 1 << 30
"""How long a frame may be."""

_LENGTH = Struct(">I")
_encode = msgspec.msgpack.Encoder().encode


class TransferError(Exception):
    """A shard cannot be taken from an instance."""


class ShardHeader(msgspec.Struct, frozen=True):
    """The identity of a shard, and how far it is."""

    format: int
    identity: CopyIdentity
    group: str
    partition: int
    state: ShardState
    """The state of the shard at the instance that sends it: whole at a snapshot."""


_decode_header = msgspec.msgpack.Decoder(ShardHeader).decode
_decode_part = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]] | int).decode


def frame_of(message: ShardHeader | list[tuple[bytes, bytes]] | int) -> bytes:
    """Return a message behind its length."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def header_of(frame: bytes) -> ShardHeader:
    """Return the first message.

    Raises:
        TransferError: It cannot be read.
    """
    try:
        header = _decode_header(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _unreadable(error) from error
    if header.format != FORMAT:
        msg = f"The shard has format {header.format}, and this instance reads {FORMAT}."
        raise TransferError(msg)
    return header


def part_of(frame: bytes) -> list[tuple[bytes, bytes]] | int:
    """Return entries, or at the end their number.

    Raises:
        TransferError: It cannot be read.
    """
    try:
        part: list[tuple[bytes, bytes]] | int = _decode_part(frame)
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error
    return part


def frames(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the frames of bytes that come in chunks.

    Raises:
        TransferError: They end inside a frame, or a frame is too long.
    """
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MOST_BYTES:
                msg = f"A message has {length} bytes. At most {MOST_BYTES} are allowed."
                raise TransferError(msg)
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                yield bytes(view[start + _LENGTH.size : end])
            start = end
        del buffer[:start]
    if buffer:
        msg = "The shard ends inside a message."
        raise TransferError(msg)


def _unreadable(error: Exception) -> TransferError:
    return TransferError(f"A message cannot be read: {error}")
