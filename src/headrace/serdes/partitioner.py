"""The partition of a key: Kafka's hash, bit for bit."""

from __future__ import annotations

import struct
from functools import lru_cache

# Keys come back: a remembered one costs a tenth of hashing it again.
_REMEMBERED_KEYS = 131_072

_WORDS = [struct.Struct(f"<{count}I").unpack_from for count in range(33)]


def murmur2(data: bytes) -> int:
    """Return the hash of ``data`` as a signed 32-bit number, as Kafka's ``Utils.murmur2`` does."""
    unsigned = _unsigned_murmur2(data)
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition Kafka's producer sends a key to, out of ``partitions``."""
    if partitions < 1:
        msg = f"A topic has at least 1 partition, but got {partitions}. Give its partition count."
        raise ValueError(msg)
    return remembered_partition(key, partitions)


@lru_cache(_REMEMBERED_KEYS)
def remembered_partition(key: bytes, partitions: int) -> int:
    """Return the same for a count that is known to be one or more."""
    return (_unsigned_murmur2(key) & 0x7FFF_FFFF) % partitions


# The constant of the hash is written out below: a global name would cost 5 % more.
def _unsigned_murmur2(data: bytes) -> int:
    size = len(data)
    words = size >> 2
    unpack = _WORDS[words] if words < len(_WORDS) else struct.Struct(f"<{words}I").unpack_from
    hashed = 0x9747B28C ^ size
    for word in unpack(data):
        mixed = word * 0x5BD1E995 & 0xFFFF_FFFF
        hashed = (hashed * 0x5BD1E995 ^ (mixed ^ mixed >> 24) * 0x5BD1E995) & 0xFFFF_FFFF
    if size & 3:
        rest = int.from_bytes(data[size & ~3 :], "little")
        hashed = (hashed ^ rest) * 0x5BD1E995 & 0xFFFF_FFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFF_FFFF
    return hashed ^ hashed >> 15
