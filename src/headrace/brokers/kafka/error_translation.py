"""Translates errors of Kafka's client, and retries its requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
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
    KafkaError._DESTROY_BROKER,
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
_EXPELLED = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
}
NOT_READY = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_CONTROLLER,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
}
"""Errors that end by themselves: an election of a leader or coordinator, a transaction's end."""

RETRIABLE = frozenset(NOT_READY | _UNREACHABLE)
"""Errors that are worth a retry: an unreachable broker may be back soon."""

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_TRIES = 3
_SHORTEST_TRY = 1.0
_LONGEST_TRY = 5.0
"""Seconds after which the client looks up the leader or the coordinator again."""


class Failures:
    """Turns errors of one client into ours, with the last error that the client logged."""

    def __init__(self, servers: str, timeout: float) -> None:
        self.servers = servers
        self.timeout = timeout
        """Seconds to wait for the broker, all attempts together."""
        self.attempt_timeout = max(timeout / _TRIES, min(timeout, _SHORTEST_TRY))
        """Seconds to wait for one answer before the request is retried on another connection."""
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Remember an error that no request raises; librdkafka's ``error_cb``."""
        # The error before "All brokers are down" is the reason.
        if self._last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def last_heard(self) -> str:
        """Return the client's last error, as part of a sentence."""
        return "" if self._last is None else f" (last: {self._last.str()})"

    def streams_error_from(
        self,
        failure: KafkaException | KafkaError,
        doing: str,
        *,
        topic: str | None = None,
        group: str = "",
        transactional_id: str = "",
    ) -> StreamsError:
        """Return our error for one of the client's; ``doing`` completes "Kafka refused to …"."""
        error = error_of(failure)
        code = error.code()
        last = self._last
        if code in _UNREACHABLE and last is not None and last.code() in _REFUSED:
            error, code = last, last.code()
        reason = error.str()
        if code in _REFUSED:
            return AuthorizationError(
                f"The broker at {self.servers} does not let this client {doing}: {reason}. "
                "Check the `security_…`, `sasl_…` and `ssl_…` settings and the broker's rules."
            )
        if code in _UNREACHABLE:
            return BrokerUnavailableError(
                f"The broker at {self.servers} did not answer within {self.timeout:g} s when asked "
                f"to {doing}{self.last_heard()}. Check `bootstrap_servers`, and that the broker "
                "runs."
            )
        if code in NOT_READY:
            return BrokerUnavailableError(
                f"The broker at {self.servers} could not {doing} for {self.timeout:g} s: "
                f"{reason.rstrip('.')}. Check that all brokers run, and see their logs."
            )
        if code in UNKNOWN_TOPIC and topic is not None:
            return UnknownTopicError(topic)
        if code in _FENCED:
            return ProducerFencedError(transactional_id)
        if code in _EXPELLED:
            return CommitFailedError(group)
        if code == KafkaError.NON_EMPTY_GROUP:
            return GroupNotEmptyError(group)
        if code == KafkaError.TOPIC_ALREADY_EXISTS and topic is not None:
            return TopicExistsError(topic)
        return BrokerError(f"Kafka refused to {doing}: {reason.rstrip('.')}.")

    def call_with_retries(
        self,
        call: Callable[[float], T],
        *,
        also: frozenset[int] = frozenset(),
        on_failure: Callable[[KafkaError], object] | None = None,
        timeout: float | None = None,
    ) -> T:
        """Call ``call`` and return its result; retry retriable errors until the timeout.

        ``call`` gets the seconds to wait for one answer; ``also`` has further codes to retry.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        pause = _FIRST_PAUSE
        while True:
            left = deadline - time.monotonic()
            try:
                with unwrap_fatal_error():
                    answer = call(max(_FIRST_PAUSE, min(left, self.attempt_timeout, _LONGEST_TRY)))
            except KafkaException as failure:
                error = error_of(failure)
                if not self._is_retriable(error, also) or time.monotonic() + pause >= deadline:
                    raise
                if on_failure is not None:
                    on_failure(error)
            else:
                self._last = None  # earlier errors are over
                return answer
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_retriable(self, error: KafkaError, also: frozenset[int]) -> bool:
        if error.fatal() or error.txn_requires_abort():
            return False
        code = error.code()
        if code in _UNREACHABLE and self._last is not None and self._last.code() in _REFUSED:
            return False  # the broker answers, and denies access
        return error.retriable() or code in RETRIABLE or code in also


@contextmanager
def unwrap_fatal_error() -> Iterator[None]:
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


class TimedCalls:
    """Runs calls of a client that have no timeout of their own, on a thread that stays."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None] | None] | None = None

    def run(self, call: Callable[[], T], seconds: float) -> T:
        """Return the result of a call, or raise a `KafkaException` if it times out.

        The call then continues in the background.
        """
        answer: Future[T] = Future()

        def fill() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        if self._waiting is None:
            self._waiting = SimpleQueue()
            Thread(target=_serve, args=[self._waiting], name="kafka-calls", daemon=True).start()
        self._waiting.put(fill)
        try:
            return answer.result(seconds)
        except TimeoutError:
            self.close()  # the next call does not wait for this one
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def close(self) -> None:
        """End the thread after the calls that it has."""
        if self._waiting is not None:
            self._waiting.put(None)
            self._waiting = None


def _serve(waiting: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := waiting.get()) is not None:
        call()


def error_of(failure: KafkaException | KafkaError) -> KafkaError:
    """Return the error inside an exception of the client."""
    if isinstance(failure, KafkaError):
        return failure
    inner = failure.args[0] if failure.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(failure))


def config_error(failure: KafkaException) -> ConfigError:
    """Return the error of settings that the client does not take, without their values."""
    text = error_of(failure).str()
    named = re.search(r'propert(?:y|ies):? "?([\w.]+)"?', text)
    what = f"`{named[1]}`" if named else "A setting of the Kafka client"
    problem = "is no setting of the Kafka client" if "No such" in text else "has a value it refuses"
    return ConfigError(f"{what} {problem}. See librdkafka's CONFIGURATION.md.")
