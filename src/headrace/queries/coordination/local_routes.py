"""The HTTP routes between instances. None of them forwards."""

from __future__ import annotations

READ_PATH = "/local/read"
"""POST: a `LocalRead`, answered by a `LocalAnswer`, both as MessagePack."""
CHANGES_PATH = "/local/changes"
"""POST: a `LocalChanges`, answered by a `ChangesAnswer`, both as MessagePack."""
STATUS_PATH = "/local/status"
"""GET: the `MemberStatus` of the instance, as JSON."""
SHARD_PATH = "/local/shards/{group}/{partition}"
"""GET: the bytes of a shard, for an instance that restores it."""

MESSAGEPACK_TYPE = "application/msgpack"
"""The content type of reads and changes."""


def shard_path(group: str, partition: int) -> str:
    """Return the path of a shard; groups have letters, digits, dots, dashes and underscores."""
    return SHARD_PATH.format(group=group, partition=partition)
