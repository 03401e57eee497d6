"""The blob store below the B+ tree: bytes by key, of one grouping key. Each page is a blob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class BlobStore(Protocol):
    """Blobs by key, of one grouping key.

    A call pipelines its requests, so it costs about one round trip for any number of keys.
    """

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        """Return the blobs of the keys, in the same order; None for a missing blob."""
        ...

    def apply(self, changes: Mapping[bytes, bytes | None], /) -> None:
        """Set the blob of each key; None deletes it."""
        ...


class MemoryBlobs:
    """A `BlobStore` in memory that counts its calls, blobs and bytes."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, bytes] = {}
        """All blobs by key."""
        self.reads = 0
        """The calls of `get_many` with at least one key."""
        self.blobs_read = 0
        self.bytes_read = 0
        self.writes = 0
        """The calls of `apply` with at least one change."""
        self.blobs_written = 0
        self.bytes_written = 0

    def get_many(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        blobs = [self.blobs.get(key) for key in keys]
        self.reads += bool(keys)
        self.blobs_read += len(keys)
        self.bytes_read += sum(len(blob) for blob in blobs if blob is not None)
        return blobs

    def apply(self, changes: Mapping[bytes, bytes | None], /) -> None:
        self.writes += bool(changes)
        for key, blob in changes.items():
            if blob is None:
                self.blobs.pop(key, None)
            else:
                self.blobs[key] = blob
                self.blobs_written += 1
                self.bytes_written += len(blob)
