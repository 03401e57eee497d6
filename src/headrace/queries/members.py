"""The instances of an application, and what each says about itself."""

from __future__ import annotations

import msgspec

from headrace.queries.copy.layout import Shard


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an instance about its copy."""

    name: str
    """``application.server`` of the instance."""
    history: str | None = None
    """The history of the newest snapshot record that it has read; None: it has read none."""
    snapshot: int | None = None
    """The number of that record."""
    shards: dict[str, int] = {}
    """The newest snapshot that it shows of each shard; keys are made by `shard_name`."""
    ready: tuple[str, ...] = ()
    """The shards that are not far behind."""
    is_ready: bool = False
    """Whether it is a member, and all shards that it should have are ready."""
    layout: str = ""
    """The digest of the stores of its program."""
    run: str = ""
    """An id that no other run of the instance has."""
    number: int = 0
    """Rises with each status of a run. Clocks do not order them: a clock may be set back."""


def shard_name(shard: Shard) -> str:
    """Return the name of a shard in a `MemberStatus`."""
    return f"{shard.group}/{shard.partition}"
