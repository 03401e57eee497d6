"""The blob store: bytes by key, of one grouping key. The B+ tree keeps its pages in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class BlobState(Protocol):
    """Blobs by key, for one Spark group. A call is a burst: its cost is that of one round trip."""

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        """Return the blobs of the keys, in their order; None where there is none."""
        ...

    def apply(self, changes: Mapping[bytes, bytes | None], /) -> None:
        """Set the blob of each key; None removes it."""
        ...


class MemoryBlobs:
    """A `BlobState` in memory; it counts what is asked of it."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, bytes] = {}
        """What there is."""
        self.reads = 0
        """How many calls of `get_many` asked for something."""
        self.blobs_read = 0
        self.bytes_read = 0
        self.writes = 0
        """How many calls of `apply` changed something."""
        self.blobs_written = 0
        self.blobs_removed = 0
        self.bytes_written = 0

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        found = [self.blobs.get(key) for key in keys]
        self.reads += bool(keys)
        self.blobs_read += len(keys)
        self.bytes_read += sum(len(blob) for blob in found if blob is not None)
        return found

    def apply(self, changes: Mapping[bytes, bytes | None], /) -> None:
        self.writes += bool(changes)
        for key, blob in changes.items():
            if blob is None:
                self.blobs.pop(key, None)
                self.blobs_removed += 1
            else:
                self.blobs[key] = blob
                self.blobs_written += 1
                self.bytes_written += len(blob)
