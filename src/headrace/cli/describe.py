"""``headrace describe``: a program's topology as text, data or a picture."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.session import Session, with_options
from headrace.cli.settings import BrokerOptions, code_of
from headrace.cli.targets import MissingSerde, load_target
from headrace.config import StreamsConfig
from headrace.errors import ConfigError, StreamsError
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.lookup import kind_in_words
from headrace.topology.description_data import description_data
from headrace.topology.lower import LoweredTopology
from headrace.topology.naming import changelog_topic
from headrace.topology.nodes import SinkNode, SourceNode
from headrace.topology.pictures import (
    graphviz_from,
    mermaid_from,
    origins_of,
    picture_from,
    svg_from,
)

_STEP = re.compile(r"^ +(?:Source|Processor|Sink): (\S+)")


class Format(StrEnum):
    """The output formats."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    GRAPHVIZ = "graphviz"
    """The same as ``dot``."""
    SVG = "svg"
    JSON = "json"


_FORMATS = {
    ".txt": Format.TEXT,
    ".mmd": Format.MERMAID,
    ".mermaid": Format.MERMAID,
    ".dot": Format.DOT,
    ".gv": Format.DOT,
    ".svg": Format.SVG,
    ".json": Format.JSON,
}
"""The format of a file, by its ending."""
_OTHER_PICTURES = {".bmp", ".eps", ".gif", ".jpeg", ".jpg", ".pdf", ".png", ".ps", ".webp"}


@with_options
def describe(
    target: Annotated[str, typer.Argument(help="file.py[:name] or module[:name]")],
    format_: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Text is Kafka's own; left out: as the file ends."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-o", help="Write to a file instead.")
    ] = None,
    *,
    extended: Annotated[
        bool, typer.Option("--extended", help="Add program lines, serdes and stores to the text.")
    ] = False,
    session: Session,
    settings: BrokerOptions,
) -> None:
    """Show the topology of a program. Nothing runs."""
    program = load_target(target)
    config = settings.config(code_of(program))
    lowered = program.lowered(config)
    wanted = format_ or _format_of(file) or (Format.JSON if session.is_json else Format.TEXT)
    text = _written(lowered, wanted, config, extended=extended)
    if file is None:
        typer.echo(text, nl=not text.endswith("\n"))
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{str(file)!r} cannot be written ({error}). Choose another file."
        raise StreamsError(msg) from error
    session.say(f"Written to {file}.")


def _format_of(file: Path | None) -> Format | None:
    """Return the format for the ending of a file; None if the ending names none."""
    ending = "" if file is None else file.suffix.lower()
    if ending in _OTHER_PICTURES:
        msg = (
            f"A topology cannot be written as {ending!r}. "
            f"Use a file that ends in {', '.join(_FORMATS)}; the picture is .svg."
        )
        raise ConfigError(msg)
    return _FORMATS.get(ending)


def _written(
    lowered: LoweredTopology, wanted: Format, config: StreamsConfig, *, extended: bool
) -> str:
    origins = origins_of(lowered.graph)
    if wanted is Format.TEXT:
        return _extended(lowered, origins, config) if extended else str(lowered.description)
    if wanted is Format.JSON:
        return json.dumps(description_data(lowered.description, origins), indent=2) + "\n"
    picture = picture_from(lowered.description, origins)
    draw = {
        Format.MERMAID: mermaid_from,
        Format.DOT: graphviz_from,
        Format.GRAPHVIZ: graphviz_from,
        Format.SVG: svg_from,
    }
    return draw[wanted](picture)


def _extended(lowered: LoweredTopology, origins: dict[str, str], config: StreamsConfig) -> str:
    """Return Kafka's text with the program's line and the serdes beside each step."""
    lines = []
    for line in str(lowered.description).splitlines():
        match = _STEP.match(line)
        notes = [] if match is None else _notes(match[1], lowered, origins)
        lines.append(f"{line}  # {', '.join(notes)}" if notes else line)
    stores = [_store_line(store, config) for store in lowered.graph.stores.values()]
    return "\n".join([*lines, "Stores:", *(stores or ["  none"])]) + "\n"


def _notes(name: str, lowered: LoweredTopology, origins: dict[str, str]) -> list[str]:
    node = lowered.graph.nodes.get(name)
    notes = [origins[name]] if name in origins else []
    if isinstance(node, SourceNode | SinkNode):
        notes.append(f"key {_serde_name(node.key.serde)}, value {_serde_name(node.value.serde)}")
    return notes


def _store_line(store: StoreBuilder[Any], config: StreamsConfig) -> str:
    kind = kind_in_words(store)
    key, value = _serde_name(store.key.serde), _serde_name(store.value.serde)
    line = f"  {store.name}: {kind}, key {key}, value {value}"
    if store.changelog is None and not store.queryable:
        return line
    application = config.application_id or "<application.id>"
    return f"{line}, changelog {store.changelog or changelog_topic(application, store.name)}"


def _serde_name(serde: object) -> str:
    if serde is None or isinstance(serde, MissingSerde):
        return "?"
    return type(serde).__name__.removesuffix("Serde").lower()
