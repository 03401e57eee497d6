"""Opens Kafka's clients, all with the same settings."""

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
"""The client finds a broker again this soon; librdkafka would wait for up to 10 s."""

_SHORTEST_TIMEOUT_MS = 10

_BATCH_BYTES = 1_000_000
"""librdkafka's default size of a batch."""


class _Details:
    """Logs librdkafka's messages at level DEBUG; errors are raised."""

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
    def application_id(self) -> str | None:
        """The application whose clients these are."""
        return self._config.application_id

    @property
    def batch_bytes(self) -> int:
        """The configured or default size of a producer's batches."""
        settings = self._config.client_settings("producer")
        return max(1, int(settings.get("batch.size", _BATCH_BYTES)))

    @property
    def producer_settings(self) -> Mapping[str, str]:
        """The application's settings for producers, under Java's names."""
        return self._config.client_settings("producer")

    @property
    def transaction_timeout_ms(self) -> int | None:
        """Return how long a transaction may be open, if that is configured."""
        timeout_ms = self._config.client_settings("producer").get("transaction.timeout.ms")
        return None if timeout_ms is None else int(timeout_ms)

    def admin(self) -> AdminClient:
        return self._made(AdminClient, "admin", self._config.client_settings("admin"), {})

    def producer(self, settings: Mapping[str, str] | None = None, **own: Any) -> Producer:
        """Open a producer.

        ``settings``, by Java's names, win over the application's. ``own``, by librdkafka's names
        with underscores, win over both.
        """
        common = self._config.client_settings("producer")
        return self._made(Producer, "producer", {**common, **(settings or {})}, own)

    def consumer(
        self,
        settings: Mapping[str, str] | None = None,
        on_commit: Callable[..., None] | None = None,
        **own: Any,
    ) -> Consumer:
        """Open a consumer; ``on_commit(error, partitions)`` reports asynchronous commits."""
        common = self._config.client_settings("main.consumer")
        callbacks = {} if on_commit is None else {"on_commit": on_commit}
        return self._made(Consumer, "consumer", {**common, **(settings or {})}, own, **callbacks)

    def assigned_consumer(self, group_id: str, **own: Any) -> Consumer:
        """Open a consumer that reads committed records of the partitions that it is assigned.

        It never joins ``group_id``: librdkafka asks for a name.
        """
        return self.consumer(
            group_id=group_id,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            isolation_level="read_committed",
            auto_offset_reset="error",
            fetch_queue_backoff_ms=2,
            queued_max_messages_kbytes=32 << 10,
            # It also bounds a batch that zstd expands; above it the client returns no record.
            receive_message_max_bytes=2**31 - 1,
            **own,
        )

    def _made(
        self,
        make: Callable[..., T],
        kind: Kind,
        settings: Mapping[str, str],
        own: dict[str, Any],
        **callbacks: Any,
    ) -> T:
        client_config: dict[str, Any] = {
            "reconnect.backoff.ms": _FIRST_RECONNECT_MS,
            # Otherwise closing a client sends metrics and waits for the answer.
            "enable.metrics.push": False,
            **client_settings(kind, settings),
            **{name.replace("_", "."): value for name, value in own.items()},
            "error_cb": self.failures.note,
            **callbacks,
        }
        first = int(client_config["reconnect.backoff.ms"])
        client_config.setdefault("reconnect.backoff.max.ms", max(first, _LAST_RECONNECT_MS))
        if "socket.timeout.ms" not in settings:
            # Close a silent connection early enough to retry on another one.
            attempt_ms = int(self.failures.attempt_timeout * 1000)
            expiry_ms = int(client_config.get("transaction.timeout.ms", attempt_ms))
            client_config["socket.timeout.ms"] = max(
                _SHORTEST_TIMEOUT_MS, min(attempt_ms, expiry_ms)
            )
        try:
            return make(client_config, logger=_Details())
        except KafkaException as error:
            raise config_error(error) from None
