"""KafkaHandler: log records as records of a topic."""

from __future__ import annotations

import logging
from typing import Unpack

from headrace.clients.producer import KafkaProducer
from headrace.clients.settings import ProducerSettings

_OWN_LOGGERS = ("headrace", "concurrent.futures")
"""Loggers that writing itself uses: writing their records would never end."""


class KafkaHandler(logging.Handler):
    """Writes each log record, formatted, to a topic; its key is the name of the logger.

    Args:
        topic: The topic to write to.
        level: The lowest level to write.
        settings: Those of `KafkaProducer`.
    """

    def __init__(
        self, topic: str, level: int | str = logging.NOTSET, **settings: Unpack[ProducerSettings]
    ) -> None:
        super().__init__(level)
        self.topic = topic
        self._producer = KafkaProducer(key=str, value=str, **settings)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record; `logging.raiseExceptions` decides about errors."""
        if record.name.partition(".")[0] in _OWN_LOGGERS or record.name in _OWN_LOGGERS:
            return
        try:
            self._producer.send(
                self.topic, record.name, self.format(record), timestamp=int(record.created * 1000)
            )
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until everything is written."""
        self._producer.flush()

    def close(self) -> None:
        """Write the buffered records, and close the producer."""
        self._producer.close()
        super().close()
