"""The heartbeats of three nodes that have the connections of the slide; one falls silent."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.examples.connections.model import HeartBeat
from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"heartbeats": 1}
PER_SECOND = 3
START = 1_700_000_000_000
NODES = {
    "node-1": ["smsc-1", "smsc-2"],
    "node-2": ["smsc-3", "smsc-4"],
    "node-3": ["smsc-5", "smsc-6"],
}
SILENT_AFTER = 12
"""The second in which ``node-2`` sends its last heartbeat."""


def second(number: int) -> list[FeedRecord]:
    """Return the heartbeats of one second."""
    time = START + 1000 * number
    return [
        FeedRecord("heartbeats", "tick", HeartBeat(node, connections, time), time)
        for node, connections in NODES.items()
        if node != "node-2" or number <= SILENT_AFTER
    ]


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    """Yield the heartbeats of 30 seconds; the seed changes nothing."""
    del seed
    for number in range(30):
        yield from second(number)


if __name__ == "__main__":
    print_lines(feed())
