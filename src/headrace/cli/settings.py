"""Merges the settings of a command: program, files, environment, flags. Parses times in flags."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer

from headrace.brokers import open_log
from headrace.brokers.opening import log_flags
from headrace.brokers.sessions import Broker
from headrace.cli.targets import Target
from headrace.config import Settings, StreamsConfig, catalogue
from headrace.config.catalogue import keyword_of
from headrace.config.loading import settings_file, settings_from_file
from headrace.config.masking import MASK, is_secret
from headrace.config.reading import Reading
from headrace.durations import duration_ms
from headrace.errors import ConfigError, StreamsError
from headrace.records import timestamp_ms

_LOG_SETTINGS = {"bootstrap.servers", "embedded.path", "state.dir", "work.dir"}
"""The settings that `log_flags` has."""
_option = partial(typer.Option, rich_help_panel="Where the topics are")


@dataclass(frozen=True)
class BrokerOptions:
    """Flags that choose the broker."""

    bootstrap_servers: Annotated[
        str | None,
        _option(
            "--bootstrap-servers", help="Kafka's addresses; without them the embedded log is used."
        ),
    ] = None
    embedded_path: Annotated[
        Path | None, _option("--embedded-path", help="The file of the embedded log.")
    ] = None
    state_dir: Annotated[
        Path | None,
        _option("--state-dir", help="The folder of checkpoints and of the embedded log."),
    ] = None
    command_config: Annotated[
        Path | None,
        _option(
            "--command-config",
            help="A .properties or .toml file with settings: servers, login, certificates.",
        ),
    ] = None
    setting: Annotated[
        list[str] | None,
        _option(
            "--setting",
            "-s",
            metavar="NAME=VALUE",
            help="Any setting, by Kafka's dotted name; may be repeated.",
        ),
    ] = None

    def flags(self) -> dict[str, Any]:
        """Return the flags that were used, under dotted names."""
        if self.bootstrap_servers and self.embedded_path:
            msg = (
                "`--bootstrap-servers` means Kafka and `--embedded-path` means the embedded log. "
                "Give one of them."
            )
            raise ConfigError(msg)
        settings: dict[str, Any] = dict(self._settings())
        named = {
            "bootstrap.servers": self.bootstrap_servers,
            "embedded.path": self.embedded_path,
            "state.dir": self.state_dir,
        }
        return settings | {name: value for name, value in named.items() if value is not None}

    def config(self, code: StreamsConfig | None = None) -> StreamsConfig:
        """Return the settings: code < file < environment < flags.

        Raises:
            ConfigError: Settings that cannot be used, all of them together.
        """
        return laid_over(code, self.flags(), self.command_config)

    @contextmanager
    def open(self, code: StreamsConfig | None = None) -> Iterator[Broker]:
        """Open the log that the settings name, for the time of a block."""
        config = self.config(code)
        with self.repeated_in_errors(config), closing(open_log(config)) as log:
            yield log

    @contextmanager
    def repeated_in_errors(self, config: StreamsConfig) -> Iterator[None]:
        """Add the log and the given flags to the commands in error messages."""
        try:
            yield
        except StreamsError as error:
            error.command_flags = self.repeated(config)
            raise

    def repeated(self, config: StreamsConfig) -> str:
        """Return the flags with which another command finds the same log; secrets are masked."""
        return " ".join([log_flags(config), *self.given()])

    def given(self) -> list[str]:
        """Return the flags that were given besides those of the log; secrets are masked."""
        flags = []
        if self.command_config is not None:
            flags.append(shlex.join(["--command-config", str(self.command_config)]))
        for name, value in self._settings():
            if name not in _LOG_SETTINGS:
                shown = MASK if is_secret(name, value) else value
                flags.append(shlex.join(["-s", f"{name}={shown}"]))
        return flags

    def _settings(self) -> Iterator[tuple[str, str]]:
        for text in self.setting or ():
            yield name_and_value(text, "-s", "-s num.stream.threads=2")


def laid_over(
    code: StreamsConfig | None, flags: Mapping[str, Any], file: Path | None = None
) -> StreamsConfig:
    """Return the settings of a program, overlaid by files, environment and flags.

    ``file`` has settings that win over ``headrace.toml``, and lose to the environment.

    Raises:
        ConfigError: Settings that cannot be used, all of them together.
    """
    config = StreamsConfig() if code is None else code
    config = config.overlaid_by(StreamsConfig.load())
    if file is not None:
        config = config.overlaid_by(StreamsConfig.load(file))
    from_flags = StreamsConfig.from_properties(flags)
    if from_flags.embedded_path is not None and not from_flags.uses_kafka:
        config = config.with_settings(bootstrap_servers=None)
    return config.overlaid_by(from_flags)


def code_of(target: Target) -> StreamsConfig | None:
    """Return the settings that a program gives its application."""
    return None if target.app is None else target.app.config


def named(config: StreamsConfig, target: Target) -> StreamsConfig:
    """Return settings with an application id: the name of the program, if they have none."""
    if config.application_id is not None:
        return config
    return config.with_settings(application_id=target.name.replace("_", "-"))


def origins_of(
    code: StreamsConfig | None, flags: Mapping[str, Any], file: Path | None = None
) -> dict[str, str]:
    """Return the origin of each setting that is not a default, by its dotted name."""
    origins = {} if code is None else dict.fromkeys(code.properties(), "the program")
    for path in filter(None, (settings_file(Path()), file)):
        read, _ = settings_from_file(path, os.environ)
        origins |= dict.fromkeys(StreamsConfig.from_properties(read).properties(), str(path))
    reading = Reading(catalogue())
    reading.take_variables(os.environ)
    from_variables = StreamsConfig.merged(None, cast(Settings, reading.values))
    origins |= dict.fromkeys(from_variables.properties(), "the environment")
    return origins | dict.fromkeys(StreamsConfig.from_properties(flags).properties(), "a flag")


def client_keywords(config: StreamsConfig, kind: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as keywords that a client ("producer" or "main.consumer") knows."""
    shared = {name: value for name, value in config.given.items() if name in known}
    own = config.producer if kind == "producer" else config.main_consumer.laid_over(config.consumer)
    return shared | {keyword_of(name): value for name, value in own.items()}


def duration_of_flag(text: str, flag: str) -> int:
    """Return the milliseconds of a duration: 1h30m, or PT1H30M, as Kafka's tools take it.

    Raises:
        ConfigError: It is neither.
    """
    with suppress(ValueError):
        return duration_ms(text, what=flag)
    with suppress(ValueError):
        return duration_ms(msgspec.convert(text, timedelta), what=flag)
    msg = (
        f"`{flag}` is {text!r}, which is not a duration. "
        f"Write, for example, `{flag} 1h30m` or `{flag} PT1H30M`."
    )
    raise ConfigError(msg)


def timestamp_of_flag(text: str, flag: str) -> int:
    """Return the milliseconds of a number or of an ISO-8601 text with a time zone.

    Raises:
        ConfigError: It is neither.
    """
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        what, example = "is not a time", "2026-01-31T08:00:00Z"
    else:
        if time.tzinfo is not None:
            return timestamp_ms(time)
        what, example = "has no time zone", f"{time.isoformat()}Z"
    msg = f"`{flag}` is {text!r}, which {what}. Write, for example, `{flag} {example}`."
    raise ConfigError(msg)


def name_and_value(text: str, flag: str, example: str) -> tuple[str, str]:
    """Return the two parts of NAME=VALUE.

    Raises:
        ConfigError: The text has not both.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        msg = f"`{flag} {text}` is not NAME=VALUE. Write, for example, `{example}`."
        raise ConfigError(msg)
    return name, value
