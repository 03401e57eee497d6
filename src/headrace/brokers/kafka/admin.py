"""Requests to a cluster through Kafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.brokers.kafka.client_factory import ClientFactory
from headrace.brokers.kafka.error_translation import UNKNOWN_TOPIC, error_of
from headrace.brokers.log import TopicPartition
from headrace.brokers.topic_names import unknown_topic
from headrace.errors import StreamsError

T = TypeVar("T")

_LATER_SECONDS = 1.0
"""How much later the client may report a timeout itself."""

_COORDINATOR_SECONDS = 3_600.0
"""How long the client may look for a group's coordinator, its longest value.

A client that times out crashes the process when the coordinator is back
(confluentinc/librdkafka#4605). A client that is closed first does not, so we end the wait.
"""

_PAUSE_SECONDS = 0.1
_NEW_SECONDS = 5.0
"""For how long a broker of a cluster may not know a topic that another one has created."""

# The broker's own topics.
_INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


class MissingError(StreamsError):
    """The requested item does not exist."""


class KafkaAdmin:
    """An admin client that is replaced when it fails.

    A client caches the leaders of partitions and the coordinators of groups for minutes.
    """

    def __init__(self, client_factory: ClientFactory) -> None:
        self._client_factory = client_factory
        self._failures = client_factory.failures
        self._opened: AdminClient | None = None
        self._created: dict[str, float] = {}

    def has_created(self, topic: str) -> None:
        """Ask again if a broker does not know this topic in the next seconds."""
        self._created[topic] = time.monotonic()

    def has_deleted(self, topic: str) -> None:
        """Believe a broker that does not know this topic."""
        self._created.pop(topic, None)

    def cluster_id(self) -> str:
        described = self.request(
            "describe the cluster",
            lambda client, seconds: client.describe_cluster(request_timeout=seconds),
        )
        return described.cluster_id or ""

    def topics(self) -> list[str]:
        """Return the names of all topics but the broker's own."""
        return sorted(set(self._listed()) - _INTERNAL)

    def partitions(self) -> list[TopicPartition]:
        listed = self._listed().items()
        return sorted(
            TopicPartition(topic, number) for topic, numbers in listed for number in numbers
        )

    def request(
        self,
        doing: str,
        ask: Callable[[AdminClient, float], Future[T]],
        *,
        topic: str | None = None,
        group: str = "",
        missing: int | None = None,
    ) -> T:
        """Send a request, and return the broker's answer.

        ``doing`` completes "Kafka refused to …"; ``group`` names the group whose coordinator must
        answer. Raises `MissingError` if the broker answers with the error code ``missing``.
        """

        def answer(client: AdminClient, seconds: float) -> T:
            if not group:
                return result(ask(client, seconds), seconds)
            future = ask(client, _COORDINATOR_SECONDS)
            del client  # or a traceback would keep it open: see `_COORDINATOR_SECONDS`
            return result(future, seconds - _LATER_SECONDS)

        return self._answered(doing, answer, topic=topic, group=group, missing=missing)

    def changed(
        self,
        doing: str,
        topic: str,
        ask: Callable[[AdminClient, float], Future[Any]],
        *,
        done: frozenset[int],
    ) -> None:
        """Ask the broker to change a topic.

        ``done`` holds the error codes of a retry whose first request succeeded unnoticed.
        """
        tries = count()

        def change(client: AdminClient, seconds: float) -> None:
            is_first = next(tries) == 0
            try:
                result(ask(client, seconds), seconds)
            except KafkaException as error:
                if is_first or error_of(error).code() not in done:
                    raise

        self._answered(doing, change, topic=topic)

    def call_with_retries(
        self, call: Callable[[AdminClient, float], T], *, also: frozenset[int] = frozenset()
    ) -> T:
        """Call as `Failures.call_with_retries` does, each time with a new client."""
        try:
            return self._failures.call_with_retries(
                lambda seconds: call(self._client(), seconds),
                also=also,
                on_failure=lambda _: self._drop(),
            )
        except KafkaException:
            self._drop()
            raise

    def _answered(
        self,
        doing: str,
        call: Callable[[AdminClient, float], T],
        *,
        topic: str | None = None,
        group: str = "",
        missing: int | None = None,
    ) -> T:
        try:
            return self._asked_again_about_new(topic, call)
        except KafkaException as error:
            if missing is not None and error_of(error).code() == missing:
                raise MissingError from error
            if topic is not None and error_of(error).code() in UNKNOWN_TOPIC:
                raise unknown_topic(topic, self.topics()) from None
            raise self._failures.streams_error_from(
                error, doing, topic=topic, group=group
            ) from error

    def _asked_again_about_new(
        self, topic: str | None, call: Callable[[AdminClient, float], T]
    ) -> T:
        """Call, and again while a broker may not know the topic yet."""
        old = self._created.get(topic or "", float("-inf")) + _NEW_SECONDS
        while True:
            try:
                return self.call_with_retries(call)
            except KafkaException as error:
                if error_of(error).code() not in UNKNOWN_TOPIC or time.monotonic() >= old:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _listed(self) -> dict[str, Iterable[int]]:
        try:
            listed = self.call_with_retries(
                lambda client, seconds: client.list_topics(timeout=seconds)
            )
        except KafkaException as error:
            raise self._failures.streams_error_from(error, "list its topics") from error
        return {topic: metadata.partitions for topic, metadata in listed.topics.items()}

    def _client(self) -> AdminClient:
        if self._opened is None:
            self._opened = self._client_factory.admin()
        return self._opened

    def _drop(self) -> None:
        if self._opened is not None:
            self._opened.poll(0)  # reports errors to `error_cb`
            self._opened = None


def result(future: Future[T], seconds: float) -> T:
    """Return the answer to a request that has a timeout of ``seconds``."""
    try:
        return future.result(seconds + _LATER_SECONDS)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
