"""What Kafka's client reports, in Headrace's words."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    AuthorizationError,
    BrokerError,
    BrokerUnavailableError,
    CommitFailedError,
    ConfigError,
    GroupNotEmptyError,
    ProducerFencedError,
    StreamsError,
    TopicExistsError,
    UnknownTopicError,
)

T = TypeVar("T")

_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_PUT_OUT = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
}
TRANSIENT = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_CONTROLLER,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._WAIT_COORD,
}
"""What passes by itself: a leader or a coordinator is being chosen, a transaction is ending."""

_PAUSE = 0.05


class Failures:
    """Turns errors of one client into ours, with what the client said before.

    Args:
        servers: Where the broker should be.
        timeout: Seconds to wait for it.
    """

    def __init__(self, servers: str, timeout: float) -> None:
        self.servers = servers
        self.timeout = timeout
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Remember what the client says aside; librdkafka's ``error_cb``."""
        # "All brokers are down" says less than the reason that came before it.
        if self._last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def translated(
        self,
        failure: KafkaException | KafkaError,
        doing: str,
        *,
        topic: str | None = None,
        group: str = "",
        transactional_id: str = "",
    ) -> StreamsError:
        """Return our error for one of the client's.

        Args:
            failure: What the client reported.
            doing: What was tried, as in "Kafka refused to …".
            topic: The topic it is about.
            group: The group it is about.
            transactional_id: The transactional id it is about.
        """
        error = error_of(failure)
        code = error.code()
        said = self._last
        if code in _UNREACHABLE and said is not None and said.code() in _REFUSED:
            error, code = said, said.code()
        reason = error.str()
        if code in _REFUSED:
            return AuthorizationError(
                f"The broker at {self.servers} does not let this client {doing}: {reason}. "
                "Check the `security_…`, `sasl_…` and `ssl_…` settings and the broker's rules."
            )
        if code in _UNREACHABLE:
            heard = f" (last: {said.str()})" if said is not None else ""
            return BrokerUnavailableError(
                f"The broker at {self.servers} did not answer within {self.timeout:g} s when asked "
                f"to {doing}{heard}. Check `bootstrap_servers`, and that the broker runs."
            )
        if code in UNKNOWN_TOPIC and topic is not None:
            return UnknownTopicError(topic)
        if code in _FENCED:
            return ProducerFencedError(transactional_id)
        if code in _PUT_OUT:
            return CommitFailedError(group)
        if code == KafkaError.NON_EMPTY_GROUP:
            return GroupNotEmptyError(group)
        if code == KafkaError.TOPIC_ALREADY_EXISTS and topic is not None:
            return TopicExistsError(topic)
        return BrokerError(f"Kafka refused to {doing}: {reason.rstrip('.')}.")

    def settled(self, call: Callable[[], T], *, also: frozenset[int] = frozenset()) -> T:
        """Return what ``call`` returns, trying again while what it raises passes by itself.

        Args:
            call: Asks the broker.
            also: Further codes that pass.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return call()
            except KafkaException as error:
                code = error_of(error).code()
                passes = code in TRANSIENT or code in also
                if not passes or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE)


@contextmanager
def fatal_told() -> Iterator[None]:
    """Raise a fatal error of the client as it is.

    The client sets it and then still runs our functions; Python takes that for a bug of theirs, and
    raises a ``SystemError`` in its place.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def error_of(failure: KafkaException | KafkaError) -> KafkaError:
    """Return the error inside an exception of the client."""
    if isinstance(failure, KafkaError):
        return failure
    inner = failure.args[0] if failure.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(failure))


def config_error(failure: KafkaException) -> ConfigError:
    """Return the error of settings that the client does not take, without their values."""
    said = error_of(failure).str()
    named = re.search(r'propert(?:y|ies):? "?([\w.]+)"?', said)
    what = f"`{named[1]}`" if named else "A setting of the Kafka client"
    problem = "is no setting of the Kafka client" if "No such" in said else "has a value it refuses"
    return ConfigError(f"{what} {problem}. See librdkafka's CONFIGURATION.md.")
