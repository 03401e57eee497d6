"""The settings of the application that a task depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from headrace.config import StreamsConfig
from headrace.durations import duration_ms
from headrace.processors.handlers import ExceptionHandler, built_in_handler, handler_from
from headrace.timestamps import FailOnInvalidTimestamp, TimestampExtractor


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The settings by which a task treats records, apart from its topology."""

    application_id: str = "headrace"
    on_deserialization_error: ExceptionHandler = built_in_handler("fail")  # noqa: RUF009  # frozen
    on_processing_error: ExceptionHandler = built_in_handler("fail")  # noqa: RUF009  # frozen
    on_production_error: ExceptionHandler = built_in_handler("fail")  # noqa: RUF009  # frozen
    timestamp_extractor: TimestampExtractor = FailOnInvalidTimestamp()  # noqa: RUF009  # frozen
    cache_max_bytes: int = 0
    max_task_idle_ms: int = 0
    max_record_bytes: int = 64 << 20
    traces_outputs: bool = False
    """Whether outputs carry the coordinates of their input records, for the production handler."""
    app_configs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_config(cls, config: StreamsConfig, *, application_id: str) -> TaskSettings:
        """Return the settings that tasks use."""
        dead_letter_topic = config.errors_dead_letter_queue_topic_name
        return cls(
            application_id=application_id,
            on_deserialization_error=handler_from(
                config.deserialization_exception_handler, dead_letter_topic
            ),
            on_processing_error=handler_from(
                config.processing_exception_handler, dead_letter_topic
            ),
            on_production_error=handler_from(
                config.production_exception_handler, dead_letter_topic
            ),
            timestamp_extractor=config.default_timestamp_extractor,
            cache_max_bytes=config.statestore_cache_max_bytes,
            max_task_idle_ms=duration_ms(config.max_task_idle, what="max_task_idle"),
            max_record_bytes=config.max_record_bytes,
            traces_outputs=dead_letter_topic is not None
            or config.production_exception_handler != "fail",
            app_configs=config.properties(),
        )
