"""A setting: its keyword, its name in Kafka, and the parser of its value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

from headrace.config.values import Value


@dataclass(frozen=True)
class KafkaName:
    """The name of a setting in Kafka."""

    name: str
    for_clients: bool = False
    """Whether every Kafka client gets the setting too."""


def client_name(name: str) -> KafkaName:
    """Return the name of a setting that every Kafka client gets too."""
    return KafkaName(name, for_clients=True)


@dataclass(frozen=True)
class HeadraceName:
    """The dotted name of a setting that Kafka does not have."""

    name: str
    for_clients: bool = False


@dataclass(frozen=True)
class Setting:
    """One setting."""

    keyword: str
    named: KafkaName | HeadraceName
    value: Value
    default: object

    @property
    def name(self) -> str:
        """The dotted name."""
        return self.named.name


Catalogue: TypeAlias = Mapping[str, Setting]
"""All settings, by keyword."""


def keyword_of(name: str) -> str:
    """Return the keyword of a dotted name: a final ``.ms`` is dropped, dots are underscores."""
    return name.removesuffix(".ms").rstrip(".").replace(".", "_")


def catalogue_of(config: type[Any]) -> Catalogue:
    """Return the settings that a dataclass declares in its annotations."""
    hints = get_type_hints(config, include_extras=True)
    settings = {}
    for field in fields(config):
        if get_origin(hints[field.name]) is Annotated:
            _, named, value = get_args(hints[field.name])
            settings[field.name] = Setting(field.name, named, value, field.default)
    return settings
