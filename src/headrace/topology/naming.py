"""Generated names: Kafka's prefixes and its one counter."""

from __future__ import annotations

import re

REPARTITION_SUFFIX = "-repartition"
TRIAL_SUFFIX = "-refusal-trial"
STORE_INFIX = "STATE-STORE-"

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_GENERATED_STREAM_NAME = re.compile(r"KSTREAM.*-[0-9]{10}")


def numbered(prefix: str, index: int) -> str:
    """Return a generated name: the prefix and ten digits."""
    return f"{prefix}{index:010d}"


def is_generated_stream_name(name: str) -> bool:
    """Return whether Kafka takes ``name`` for one it generated for a step of a stream."""
    return _GENERATED_STREAM_NAME.fullmatch(name) is not None


def is_topic_name(name: str) -> bool:
    """Return whether Kafka lets a topic have this name."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in {".", ".."}


def internal_topic(application_id: str, topic: str) -> str:
    """Return the full name of an internal topic."""
    return f"{application_id}-{topic}"


def markers_name(application_id: str) -> str:
    """Return the name of the topic of markers, and of the group whose offsets they are."""
    return f"{application_id}-markers"


def leader_name(application_id: str) -> str:
    """Return the name of the group whose one member may run an application, and of its topic."""
    return f"{application_id}-leader"


def transactional_id(application_id: str, partition: int) -> str:
    """Return who writes what comes to a Spark partition of the sink."""
    return f"{application_id}-{partition}"


def dead_letters_transactional_id(application_id: str) -> str:
    """Return the id that writes the dead letters of records that stop the application."""
    return f"{application_id}-dead-letters"


def redrive_name(application_id: str) -> str:
    """Return the group that remembers which dead letters were replayed, and its transactions."""
    return f"{application_id}-redrive"


def queries_name(application_id: str) -> str:
    """Return the name of the group of instances that answer queries."""
    return f"{application_id}-queries"


def snapshots_name(application_id: str) -> str:
    """Return the name of the topic of snapshot records."""
    return f"{application_id}-snapshots"


def changelog_topic(application_id: str, store: str) -> str:
    """Return the name of the changelog topic of a store."""
    return f"{application_id}-{store}-changelog"


def trial_topic(application_id: str, trial: str) -> str:
    """Return the name of a topic that shows which records a broker refuses, and is then deleted."""
    return f"{application_id}-{trial}{TRIAL_SUFFIX}"
