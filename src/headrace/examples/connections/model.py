"""Heartbeats of nodes, and the scheme that says which node has which connection."""

from __future__ import annotations

from msgspec import Struct

CONNECTIONS = ["smsc-1", "smsc-2", "smsc-3", "smsc-4", "smsc-5", "smsc-6"]
"""The connections that must be open, each on one node."""


class HeartBeat(Struct, rename="camel"):
    """A node is alive and has these connections; ``now`` is the time of its own clock."""

    node_id: str
    connections_info: list[str]
    now: int


class HeartBeatsList(Struct, rename="camel"):
    """The last heartbeat of each node in a window."""

    heart_beats: dict[str, HeartBeat] = {}

    def add_heart_beat(self, heart_beat: HeartBeat) -> HeartBeatsList:
        """Return the list with one more heartbeat."""
        return HeartBeatsList({**self.heart_beats, heart_beat.node_id: heart_beat})


class ConnectionDeploymentScheme(Struct, rename="camel"):
    """The connections of each living node."""

    deployments: dict[str, list[str]]


def recalculate(living: HeartBeatsList) -> ConnectionDeploymentScheme:
    """Return a scheme that has each connection on one node, and moves as few as it can."""
    beats = living.heart_beats
    deployments: dict[str, list[str]] = {node: [] for node in sorted(beats)}
    most = -(-len(CONNECTIONS) // len(deployments))
    missing = dict.fromkeys(CONNECTIONS)
    for node, connections in deployments.items():
        kept = [each for each in beats[node].connections_info if each in missing][:most]
        connections += kept
        for each in kept:
            del missing[each]
    for each in missing:
        min(deployments.values(), key=len).append(each)
    return ConnectionDeploymentScheme({node: sorted(has) for node, has in deployments.items()})
