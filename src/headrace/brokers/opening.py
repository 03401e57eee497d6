"""Opens the log of an application or a client: Kafka if `bootstrap_servers` is set, else a file."""

from __future__ import annotations

import shlex
from pathlib import Path

from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.errors import ConfigError


def open_log(config: StreamsConfig) -> Broker:
    """Return the log that ``bootstrap_servers`` names, or the embedded one.

    Raises `ConfigError` if Kafka's client is not installed, or does not accept the settings.
    """
    if not config.uses_kafka:
        if config.request_timeout is None:
            return EmbeddedLog(embedded_path(config))
        busy_ms = int(config.request_timeout.total_seconds() * 1000)
        return EmbeddedLog(embedded_path(config), busy_ms=busy_ms)
    try:
        from headrace.brokers.kafka import KafkaLog
    except ModuleNotFoundError as error:
        msg = (
            "`bootstrap_servers` is set, but the Kafka client is not installed. "
            "Install it with `pip install 'headrace[kafka]'`."
        )
        raise ConfigError(msg) from error
    return KafkaLog(config)


def embedded_path(config: StreamsConfig) -> Path:
    """Return the file of the embedded log."""
    return config.embedded_path or config.state_dir / "topics.db"


def log_address(config: StreamsConfig) -> str:
    """Return the address of Kafka, or the file of the embedded log."""
    return (
        str(embedded_path(config)) if config.bootstrap_servers is None else config.bootstrap_servers
    )


def log_text(config: StreamsConfig) -> str:
    """Return where the topics are, for people."""
    return f"{'Kafka at' if config.uses_kafka else 'the embedded log'} {log_address(config)}"


def log_flags(config: StreamsConfig) -> str:
    """Return the flags by which a command uses the log and the folders of a config."""
    flag = "--bootstrap-servers" if config.uses_kafka else "--embedded-path"
    flags = [flag, log_address(config)]
    if "state_dir" in config.given:
        flags += ["--state-dir", str(config.state_dir)]
    if config.work_dir is not None:
        flags += ["-s", f"work.dir={config.work_dir}"]
    return shlex.join(flags)
