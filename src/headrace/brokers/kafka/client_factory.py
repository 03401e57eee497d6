"""Opening Kafka's clients: one place that knows how they are set up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.brokers.kafka.error_translation import Failures, config_error
from headrace.brokers.kafka.settings import Kind, client_settings
from headrace.config import StreamsConfig

T = TypeVar("T")

_log = logging.getLogger("headrace.brokers.kafka")

_TIMEOUT = 30.0
_FIRST_RECONNECT_MS = 20
"""librdkafka's 100 ms would make the opening of each client five times slower."""

_LAST_RECONNECT_MS = 1_000
"""A broker that is back is found this soon; librdkafka would wait for up to 10 s."""

_SHORTEST_TIMEOUT_MS = 10

_BATCH_BYTES = 1_000_000
"""What librdkafka's producers gather for one request and partition."""


class _Details:
    """Logs what librdkafka says as details: what comes of it is raised, in its words."""

    def log(self, _level: int, text: str, *facts: object) -> None:
        _log.debug(text, *facts)


class ClientFactory:
    """Opens clients for one set of settings."""

    def __init__(self, config: StreamsConfig) -> None:
        assert config.bootstrap_servers is not None
        timeout = config.request_timeout
        self.failures = Failures(
            config.bootstrap_servers, _TIMEOUT if timeout is None else timeout.total_seconds()
        )
        self._config = config

    @property
    def batch_bytes(self) -> int:
        """How large a producer's batches may become, if nobody says otherwise."""
        told = self._config.client_settings("producer")
        return int(told.get("batch.size", _BATCH_BYTES))

    @property
    def producer_settings(self) -> Mapping[str, str]:
        """The application's settings for producers, under Java's names."""
        return self._config.client_settings("producer")

    @property
    def transaction_timeout_ms(self) -> int | None:
        """How long a transaction may be open, if anybody says so."""
        told = self._config.client_settings("producer").get("transaction.timeout.ms")
        return None if told is None else int(told)

    def admin(self) -> AdminClient:
        """Open an admin client."""
        told = self._config.client_settings("admin")
        return self._made(AdminClient, "admin", told, {})

    def producer(self, told: Mapping[str, str] | None = None, **own: Any) -> Producer:
        """Open a producer.

        Args:
            told: Settings under Java's names that win over the application's.
            own: Settings that always hold, under librdkafka's names with underscores.
        """
        given = self._config.client_settings("producer")
        return self._made(Producer, "producer", {**given, **(told or {})}, own)

    def consumer(
        self,
        told: Mapping[str, str] | None = None,
        on_commit: Callable[..., None] | None = None,
        **own: Any,
    ) -> Consumer:
        """Open a consumer.

        Args:
            told: As for `producer`.
            on_commit: f(error, partitions), called with what became of a commit without waiting.
            own: As for `producer`.
        """
        given = self._config.client_settings("main.consumer")
        callbacks = {} if on_commit is None else {"on_commit": on_commit}
        return self._made(Consumer, "consumer", {**given, **(told or {})}, own, **callbacks)

    def _made(
        self,
        make: Callable[..., T],
        kind: Kind,
        told: Mapping[str, str],
        own: dict[str, Any],
        **callbacks: Any,
    ) -> T:
        settings: dict[str, Any] = {
            "reconnect.backoff.ms": _FIRST_RECONNECT_MS,
            # Nothing is sent when a client is closed, so that nothing is waited for.
            "enable.metrics.push": False,
            **client_settings(kind, told),
            **{name.replace("_", "."): value for name, value in own.items()},
            "error_cb": self.failures.note,
            **callbacks,
        }
        first = int(settings["reconnect.backoff.ms"])
        settings.setdefault("reconnect.backoff.max.ms", max(first, _LAST_RECONNECT_MS))
        if "socket.timeout.ms" not in told:
            # A connection that does not answer is given up early enough to try another one.
            patience = int(self.failures.patience * 1000)
            expiry = int(settings.get("transaction.timeout.ms", patience))
            settings["socket.timeout.ms"] = max(_SHORTEST_TIMEOUT_MS, min(patience, expiry))
        try:
            return make(settings, logger=_Details())
        except KafkaException as error:
            raise config_error(error) from None
