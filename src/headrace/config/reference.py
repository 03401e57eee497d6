"""The settings as a page of the documentation, made from the fields of `StreamsConfig`."""

from __future__ import annotations

import ast
import inspect
from datetime import timedelta
from itertools import pairwise
from textwrap import dedent
from typing import NamedTuple

from headrace.config.catalogue import KafkaName, Setting
from headrace.config.names import WITHOUT_EFFECT
from headrace.config.streams_config import StreamsConfig, catalogue
from headrace.config.values import Prefixed
from headrace.durations import duration_text


class SettingDescription(NamedTuple):
    """One setting, in words."""

    name: str
    """The dotted name."""
    keyword: str
    is_kafka: bool
    """Whether Kafka Streams has it too."""
    value: str
    """The accepted values."""
    default: str
    meaning: str


def describe_settings() -> list[SettingDescription]:
    """Return every setting in words, in the order of the fields."""
    meanings = _meanings()
    return [
        SettingDescription(
            name=setting.name,
            keyword=setting.keyword,
            is_kafka=isinstance(setting.named, KafkaName),
            value=setting.value.described(),
            default=_default(setting),
            meaning=meanings[setting.keyword],
        )
        for setting in catalogue().values()
    ]


def settings_reference() -> str:
    """Return the settings as tables in Markdown: those that are used, and those without effect."""
    lines = ["| Name | Keyword | Value | Default | Meaning |", "|---|---|---|---|---|"]
    for described in describe_settings():
        name = f"`{described.name}`" + ("" if described.is_kafka else " (Headrace's own)")
        lines.append(
            f"| {name} | `{described.keyword}` | {described.value} | {described.default} "
            f"| {described.meaning} |"
        )
    lines += [
        "",
        "These settings of Kafka Streams are accepted in a mapping or a file, and have no effect:",
        "",
        "| Name | Why |",
        "|---|---|",
        *(f"| `{name}` | {why} |" for name, why in sorted(WITHOUT_EFFECT.items())),
    ]
    return "\n".join(lines) + "\n"


def _default(setting: Setting) -> str:
    default = setting.default
    if isinstance(setting.value, Prefixed) or default is None:
        return ""
    if isinstance(default, timedelta):
        return f"`{duration_text(default // timedelta(milliseconds=1))}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    written = setting.value.property_of(default)
    return f"`{written}`"


def _meanings() -> dict[str, str]:
    """Return the text under each field; Python keeps it in the source alone."""
    tree = ast.parse(dedent(inspect.getsource(StreamsConfig)))
    body = [
        node for class_ in tree.body if isinstance(class_, ast.ClassDef) for node in class_.body
    ]
    return {
        ast.unparse(field.target): text.value.value
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
