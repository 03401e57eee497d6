"""Reads the value of a setting: an object of Python code, or the text of a file."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from headrace.config.masking import MaskedSettings
from headrace.durations import Duration, duration_ms, duration_text

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_MILLISECOND = timedelta(milliseconds=1)
_OFFSET_RESET = "auto.offset.reset"
_BY_DURATION = "by_duration:"


class Value(ABC):
    """A kind of value. Reads what users write, or raises a message with the fix."""

    @abstractmethod
    def read(self, value: object, what: str) -> object:
        """Return the value as the config keeps it; reading that again changes nothing.

        Raises:
            ValueError: The value cannot be used. The message is a whole problem, with its remedy.
        """

    @abstractmethod
    def described(self) -> str:
        """Return the accepted values in a few words, for the reference page."""

    def from_text(self, text: str) -> object:
        """Return what the text of a file or of the environment means, for `read`."""
        return text

    def property_of(self, value: object) -> object:
        """Return what a properties file would say for a value that was read."""
        return value


def refuse(problem: str) -> NoReturn:
    """Raise the error for a value that cannot be used."""
    raise ValueError(problem)


def integer_from_text(text: str) -> object:
    """Return the number that is written, or the text itself if it is something else."""
    return int(text) if _INTEGER.fullmatch(text.strip()) else text


@dataclass(frozen=True)
class Text(Value):
    """Any text. Errors do not quote it: passwords are text."""

    def read(self, value: object, what: str) -> object:
        if not isinstance(value, str):
            refuse(f"`{what}` is of type {type(value).__name__}. Use text.")
        return value

    def described(self) -> str:
        return "text"


@dataclass(frozen=True)
class Name(Value):
    """A name that becomes part of topics and paths."""

    max_length: int = 200

    def read(self, value: object, what: str) -> object:
        if (
            not isinstance(value, str)
            or not _NAME.fullmatch(value)
            or len(value) > self.max_length
            or value in {".", ".."}
        ):
            refuse(
                f"`{what}` is {value!r}, which cannot be part of a topic or a path. "
                f"Use 1 to {self.max_length} letters, digits, '.', '_' or '-'."
            )
        return value

    def described(self) -> str:
        return "name"


@dataclass(frozen=True)
class Flag(Value):
    """True or false."""

    def read(self, value: object, what: str) -> object:
        if not isinstance(value, bool):
            refuse(f"`{what}` is {value!r}. Use true or false.")
        return value

    def described(self) -> str:
        return "true or false"

    def from_text(self, text: str) -> object:
        return {"true": True, "false": False}.get(text.strip().lower(), text)


@dataclass(frozen=True)
class Whole(Value):
    """A whole number."""

    minimum: int = 0

    def read(self, value: object, what: str) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or value < self.minimum:
            refuse(f"`{what}` is {value!r}. Use a whole number of {self.minimum} or more.")
        return value

    def described(self) -> str:
        return "whole number"

    def from_text(self, text: str) -> object:
        return integer_from_text(text)


@dataclass(frozen=True)
class Length(Value):
    """A length of time; a bare number is milliseconds."""

    minimum_ms: int | None = 0

    def read(self, value: object, what: str) -> object:
        length = duration_ms(cast(Duration, value), what=what)
        if self.minimum_ms is not None and length < self.minimum_ms:
            refuse(f"`{what}` is {value!r}. Use {duration_text(self.minimum_ms)} or more.")
        try:
            return timedelta(milliseconds=length)
        except OverflowError:
            refuse(f"`{what}` is {value!r}, which is too long. Use at most {timedelta.max.days}d.")

    def described(self) -> str:
        return "duration"

    def from_text(self, text: str) -> object:
        return integer_from_text(text)

    def property_of(self, value: object) -> object:
        return value // _MILLISECOND if isinstance(value, timedelta) else value


@dataclass(frozen=True)
class Choice(Value):
    """One of a few words."""

    options: tuple[str, ...]
    spellings: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Other words that Kafka has for them, without the package of a class."""

    def read(self, value: object, what: str) -> object:
        if value not in self.options:
            options = " or ".join(repr(option) for option in self.options)
            refuse(f"`{what}` is {value!r}. Use {options}.")
        return value

    def described(self) -> str:
        return " or ".join(f"`{option}`" for option in self.options)

    def from_text(self, text: str) -> object:
        word = text.strip()
        alike = (option for option in self.options if option.lower() == word.lower())
        return self.spellings.get(re.split(r"[.$]", word)[-1]) or next(alike, text)


@dataclass(frozen=True)
class Location(Value):
    """The path of a file or folder."""

    def read(self, value: object, what: str) -> object:
        if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
            refuse(f"`{what}` is {value!r}. Use the path of a file or folder.")
        return Path(value)

    def described(self) -> str:
        return "path"

    def property_of(self, value: object) -> object:
        return str(value)


@dataclass(frozen=True)
class Addresses(Value):
    """Addresses ``host:port``, with commas between them or as a list."""

    single: bool = False

    def read(self, value: object, what: str) -> object:
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            parts = [str(part).strip() for part in value]
        else:
            parts = [part.strip() for part in str(value).split(",")]
        right_number = len(parts) == 1 if self.single else len(parts) >= 1
        if not right_number or not all(_is_address(part) for part in parts):
            remedy = "host:port" if self.single else "host:port, with commas between several"
            refuse(f"`{what}` is {value!r}, which is no address. Use {remedy}.")
        return ",".join(parts)

    def described(self) -> str:
        return "`host:port`" if self.single else "`host:port`, or several"


def _is_address(text: str) -> bool:
    match = _ADDRESS.fullmatch(text)
    return match is not None and int(match[1]) <= 65_535


OPTIMIZATIONS = ("reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join")
"""Kafka's names of the rewrites, in the order they are applied."""


@dataclass(frozen=True)
class Optimizations(Value):
    """``"none"``, ``"all"``, or names of rewrites; kept as a tuple of names."""

    def read(self, value: object, what: str) -> object:
        if isinstance(value, str):
            names = [name.strip() for name in value.split(",")]
        elif isinstance(value, Iterable):
            names = [str(name) for name in value] or ["none"]
        else:
            names = [str(value)]
        if names == ["all"]:
            return OPTIMIZATIONS
        if names == ["none"]:
            return ()
        if not set(names) <= set(OPTIMIZATIONS):
            refuse(
                f"`{what}` is {value!r}. "
                f'Use "none", "all", or a list of {", ".join(OPTIMIZATIONS)}.'
            )
        return tuple(name for name in OPTIMIZATIONS if name in names)

    def described(self) -> str:
        return "`none`, `all`, or a list of " + ", ".join(f"`{name}`" for name in OPTIMIZATIONS)

    def property_of(self, value: object) -> object:
        return ",".join(value) if isinstance(value, tuple) and value else "none"


@dataclass(frozen=True)
class Trigger(Length):
    """A schedule of batches: without end, until the input is used up, or at an interval."""

    def read(self, value: object, what: str) -> object:
        if value in ("continuous", "available_now"):
            return value
        try:
            return super().read(value, what)
        except ValueError:
            refuse(
                f"`{what}` is {value!r}. "
                'Use "continuous", "available_now", or a duration such as "10s".'
            )

    def described(self) -> str:
        return "`continuous`, `available_now` or duration"


@dataclass(frozen=True)
class Prefixed(Value):
    """Settings of something else, by dotted name; kept as text."""

    prefix: str
    keeps_prefix: bool = False
    """Whether the prefix is part of the names, as it is in Spark's."""
    is_kafka: bool = True
    """Whether the names are Kafka's: dotted, and milliseconds if they end so."""

    def read(self, value: object, what: str) -> object:
        if not isinstance(value, Mapping):
            refuse(
                f"`{what}` is of type {type(value).__name__}. "
                "Use a mapping of dotted names to values."
            )
        items = ((name, item) for name, item in value.items() if item is not None)
        return MaskedSettings([self._read_item(name, item, what) for name, item in items])

    def described(self) -> str:
        return "mapping"

    def _read_item(self, name: object, item: object, what: str) -> tuple[str, str]:
        if not isinstance(name, str) or not name:
            refuse(f"`{what}` has the name {name!r}. Use text.")
        if name.startswith(self.prefix) != self.keeps_prefix:
            right = f"{self.prefix}{name}" if self.keeps_prefix else name.removeprefix(self.prefix)
            refuse(f"`{what}` has the name {name!r}. Write {right!r} there.")
        if self.is_kafka and "_" in name:
            refuse(
                f"`{what}` has the name {name!r}, but Kafka's names have dots. "
                f"Write {name.replace('_', '.')!r}."
            )
        if self.is_kafka and name.endswith(".ms"):
            return name, _ms_text(item, f"{self.prefix}{name}")
        if self.is_kafka and name == _OFFSET_RESET:
            offset_reset_from_text(item, f"{self.prefix}{name}")
        return name, _text(item, name if self.keeps_prefix else f"{self.prefix}{name}")


def offset_reset_from_text(text: object, what: str = _OFFSET_RESET) -> str | int:
    """Return where a consumer without committed offsets starts: Kafka's word, or milliseconds back.

    Raises:
        ValueError: It is not ``earliest``, ``latest``, ``none``, or ``by_duration:`` with an ISO
            8601 duration. The message names the setting ``what``.
    """
    if isinstance(text, str) and text in ("earliest", "latest", "none"):
        return text
    if isinstance(text, str) and text.startswith(_BY_DURATION):
        with suppress(ValueError):
            back = msgspec.convert(text.removeprefix(_BY_DURATION), timedelta)
            if back >= timedelta(0):
                return duration_ms(back, what=what)
    refuse(
        f"`{what}` is {text!r}. Use 'earliest', 'latest', 'none', or how far back to start, such "
        "as 'by_duration:PT1H30M'."
    )


def _ms_text(item: object, name: str) -> str:
    value = integer_from_text(item) if isinstance(item, str) else item
    return str(duration_ms(cast(Duration, value), what=name))


def _text(item: object, name: str) -> str:
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, str | int | float):
        return str(item)
    refuse(f"`{name}` is of type {type(item).__name__}. Use text, a number, true or false.")
