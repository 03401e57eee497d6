"""Names of topics and groups: which are allowed, and which one was meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from headrace.errors import BrokerError, UnknownTopicError
from headrace.topology.naming import (
    TRIAL_SUFFIX,
    is_topic_name,
    leader_name,
    markers_name,
    snapshots_name,
)

_NEAR = 0.75
"""How much of two names must be alike: 'numbers' is not near 'customers'."""

_INTERNAL_ENDINGS = (
    "-changelog",
    "-repartition",
    "-subscription-registration-topic",
    "-subscription-response-topic",
    markers_name(""),
    leader_name(""),
    snapshots_name(""),
    TRIAL_SUFFIX,
)


def checked_topic_name(name: str) -> str:
    """Return a name if a topic may have it; otherwise raise `BrokerError`."""
    if not isinstance(name, str) or not is_topic_name(name):
        msg = (
            f"{name!r} cannot be the name of a topic. "
            "Use 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..' alone."
        )
        raise BrokerError(msg)
    return name


def is_internal(topic: str) -> bool:
    """Return whether a topic has the name of an internal one: changelog, repartition, markers."""
    return topic.endswith(_INTERNAL_ENDINGS)


def unknown_topic(topic: str, known: Iterable[str]) -> UnknownTopicError:
    """Return the error of a topic that does not exist, with the names that come near."""
    meant = [name for name in known if not is_internal(name)]
    return UnknownTopicError(topic, nearest=get_close_matches(topic, meant, n=2, cutoff=_NEAR))
