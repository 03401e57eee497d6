"""Snapshot records for tests."""

from __future__ import annotations

from typing import Any

from headrace.runtime.snapshots import SnapshotRecord

HISTORY = "3f9a1c07-0000-4000-8000-000000000000"
TOPIC_IDS = {"app-a": "1", "app-snapshots": "2"}


def make_record(snapshot: int, **fields: Any) -> SnapshotRecord:
    """Return a record of one changelog, with values for what a test does not name."""
    defaults: dict[str, Any] = {
        "history": HISTORY,
        "leader_epoch": 1,
        "layout": "layout",
        "topics": "topics",
        "clock": 0,
        "at": 0,
        "ends": {"app-a": [0]},
        "since": snapshot - 1,
        "changes": {},
    }
    return SnapshotRecord(snapshot=snapshot, **(defaults | fields))
