"""Loads targets: the application that ``app.py``, ``app.py:name`` or ``module:name`` names."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from headrace.app import KafkaStreams
from headrace.config import StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.dsl.builder import StreamsBuilder
from headrace.errors import StreamsError
from headrace.serdes.base import Serde, serde_for_topic
from headrace.topology.lower import LoweredTopology
from headrace.topology.naming import internal_topic
from headrace.topology.nodes import SinkNode, SourceNode
from headrace.topology.topology import Topology

_NAMES = ("app", "streams", "topology", "builder")
_KINDS = (KafkaStreams, Topology, StreamsBuilder)
_PACKAGE = Path(__file__).resolve().parents[1]
_IMPORTING = (str(_PACKAGE), "<frozen importlib", str(Path(importlib.__file__).parent))


class TargetError(StreamsError):
    """A target is ``missing``: there is no such file or name. Or it cannot be loaded."""

    def __init__(self, message: str, *, missing: bool = True) -> None:
        self.missing = missing
        super().__init__(message)


@dataclass(frozen=True)
class Target:
    """A loaded target."""

    name: str
    """The name of the file or module, without folders and ending."""
    program: KafkaStreams | Topology | StreamsBuilder

    @property
    def app(self) -> KafkaStreams | None:
        """The application, if the target is one and not only what it runs."""
        return self.program if isinstance(self.program, KafkaStreams) else None

    @property
    def topology(self) -> Topology:
        """The topology to run.

        Raises:
            TopologyError: The program is wrong.
        """
        if isinstance(self.program, KafkaStreams):
            return self.program.topology
        return self.program.build() if isinstance(self.program, StreamsBuilder) else self.program

    def lowered(self, config: StreamsConfig) -> LoweredTopology:
        """Return the topology as it would run, even where a step has no serde yet.

        A topology without an application has no default serdes, and to be read it needs none.
        """
        defaults = topology_defaults(config)
        if self.app is None:
            missing = MissingSerde()
            defaults = replace(
                defaults,
                key_serde=defaults.key_serde or missing,
                value_serde=defaults.value_serde or missing,
            )
        return self.topology.lowered(defaults)

    def input_topics(self, config: StreamsConfig, there: Iterable[str]) -> list[str]:
        """Return the topics it reads: those it names, and those of ``there`` its patterns match."""
        topics: set[str] = set()
        for node in self.lowered(config).graph.nodes.values():
            if isinstance(node, SourceNode) and not node.internal:
                pattern = node.pattern
                topics.update(node.topics)
                topics.update(topic for topic in there if pattern and pattern.fullmatch(topic))
        return sorted(topics)

    def serdes(self, topic: str, config: StreamsConfig) -> tuple[Serde[Any], Serde[Any]] | None:
        """Return the serdes of keys and values of a topic; None if the program does not use it."""
        application_id = config.application_id or ""
        for node in self.lowered(config).graph.nodes.values():
            if not isinstance(node, SourceNode | SinkNode):
                continue
            topics = node.topics if isinstance(node, SourceNode) else (str(node.topic),)
            pattern = node.pattern if isinstance(node, SourceNode) else None
            if node.internal:
                topics = tuple(internal_topic(application_id, name) for name in topics)
            if topic in topics or (pattern and pattern.fullmatch(topic)):
                return (
                    serde_for_topic(node.key.need, topic, is_key=True),
                    serde_for_topic(node.value.need, topic, is_key=False),
                )
        return None


class MissingSerde:
    """Takes the place of a serde that the program does not name, in a topology that is not run."""

    def serialize(self, value: Any) -> bytes:
        """Never called."""
        raise NotImplementedError

    def deserialize(self, data: bytes) -> Any:
        """Never called."""
        raise NotImplementedError


def is_target(text: str) -> bool:
    """Return whether a word names a program; otherwise it is an application id."""
    return text.endswith(".py") or ":" in text or os.sep in text or _is_module(text)


def _is_module(name: str) -> bool:
    """Return whether a dotted name is that of a module in a package, found without loading it."""
    package, dot, rest = name.partition(".")
    where = [str(Path.cwd()), *sys.path]
    while dot and where:
        spec = PathFinder.find_spec(package, where)
        where = [*(spec.submodule_search_locations or ())] if spec else []
        package, dot, rest = rest.partition(".")
    return bool(where) and "." in name and PathFinder.find_spec(package, where) is not None


def load_target(text: str) -> Target:
    """Load ``file.py[:name]`` or ``module[:name]``.

    Adds the folder of a file to ``sys.path``, and to the ``PYTHONPATH`` of child processes, so
    that they can import the program by its own name. On other machines workers get its source.

    Raises:
        TargetError: There is no such file or name, there are several, or loading it failed.
    """
    location, name = _split(text)
    is_file = location.endswith(".py") or os.sep in location
    module = _module_of_file(Path(location)) if is_file else _module_of_name(location)
    label = Path(location).stem if is_file else location.rpartition(".")[2]
    value = _named(module, name, location) if name else _guessed(module, location)
    return Target(label, _resolved(value, location, name))


def _split(text: str) -> tuple[str, str]:
    location, colon, name = text.rpartition(":")
    if not colon or not re.fullmatch(r"[A-Za-z_][\w.]*", name) or name.endswith(".py"):
        return text, ""
    return location, name


def _module_of_file(path: Path) -> ModuleType:
    if not _is_file(path):
        near = sorted(p.name for p in path.parent.glob("*.py"))
        there = f"there is {', '.join(near[:5])}" if near else "there is no Python file"
        msg = f"There is no file {str(path)!r}. In its folder {there}."
        raise TargetError(msg)
    path = path.resolve()
    folder, name = _import_name(path)
    if not all(part.isidentifier() for part in name.split(".")):
        msg = (
            f"The name of {path.name!r} cannot be imported, which Spark's workers have to do. "
            "Rename it to letters, digits and underscores."
        )
        raise TargetError(msg, missing=False)
    _refuse_hidden(name.split(".")[0], path)
    _make_importable(folder)
    known = sys.modules.get(name)
    if known is not None and _file_of(known) == path:
        return known
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return _imported(name, path.name)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name of more than 255 bytes
        return False


def _import_name(path: Path) -> tuple[Path, str]:
    """Return the folder to import from, and the name: packages begin at their outermost folder."""
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _refuse_hidden(name: str, path: Path) -> None:
    """Refuse a file that would hide a module that others import."""
    if name in sys.stdlib_module_names:
        hidden = f"Python's own module {name!r}"
    elif _is_installed(name, path):
        hidden = f"the installed package {name!r}"
    else:
        return
    msg = f"The file {path.name!r} hides {hidden}. Rename the file."
    raise TargetError(msg, missing=False)


def _is_installed(name: str, path: Path) -> bool:
    try:
        spec = PathFinder.find_spec(name)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    return "site-packages" in Path(spec.origin).parts or name == _PACKAGE.name


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in there:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, there)])


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).resolve()


def _module_of_name(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    if all(part.isidentifier() for part in name.split(".")):
        try:
            return _imported(name, name)
        except TargetError as error:
            cause = error.__cause__
            # A module that the program itself misses is the program's problem.
            if not (isinstance(cause, ModuleNotFoundError) and _begins(name, cause.name)):
                raise
    file = f" There is a file {name}.py: write `{name}.py`." if _is_file(Path(f"{name}.py")) else ""
    msg = f"There is no module {name!r} to import.{file or ' Name a file, as in `app.py`.'}"
    raise TargetError(msg)


def _begins(name: str, part: str | None) -> bool:
    return part is not None and f"{name}.".startswith(f"{part}.")


def _imported(name: str, label: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except SystemExit as error:
        msg = (
            f"{label} ended while it was loaded (exit code {error.code}). "
            'Put what runs it under `if __name__ == "__main__":`.'
        )
        raise TargetError(msg, missing=False) from None
    except Exception as error:
        raise _load_error(label, error) from error


def _load_error(label: str, error: BaseException) -> TargetError:
    """Return the error of the user's program, with the user's lines only."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_IMPORTING)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{Path(error.filename).name}:{error.lineno}"
        what = f"{type(error).__name__}: {error.msg}"
        lines = [f"  {where}  {(error.text or '').strip()}"]
    else:
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else label
        what = f"{type(error).__name__}: {error}"
        lines = [f"  {Path(f.filename).name}:{f.lineno}  {f.line or ''}" for f in frames]
    load_error = TargetError(f"{label} cannot be loaded. {where}: {what}", missing=False)
    for line in [*lines, *getattr(error, "__notes__", ())]:
        load_error.add_note(line)
    error.__traceback__ = _without_ours(error.__traceback__)
    return load_error


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback that begins in the user's program."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_IMPORTING):
        trace = trace.tb_next
    return trace


def _named(module: ModuleType, name: str, location: str) -> Any:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            msg = f"{location} has no {name!r}. It has {_listed(_candidates(module))}."
            raise TargetError(msg)
        value = getattr(value, part)
    return value


def _guessed(module: ModuleType, location: str) -> Any:
    candidates = _candidates(module)
    for name in _NAMES:
        if name in candidates:
            return candidates[name]
    for kind in _KINDS:
        named = {name: value for name, value in candidates.items() if isinstance(value, kind)}
        distinct = {id(value) for value in named.values()}
        if len(distinct) > 1:
            first = next(iter(named))
            msg = (
                f"{location} has several applications: {_listed(named)}. "
                f"Name one, as in `{location}:{first}`."
            )
            raise TargetError(msg, missing=False)
        if named:
            return next(iter(named.values()))
    if callable(made := getattr(module, "create_app", None)):
        return made
    msg = (
        f"{location} has no KafkaStreams, Topology or StreamsBuilder. "
        "Make one at the top of the file, for example `app = KafkaStreams(builder.build(), …)`, "
        "or a function `create_app()`."
    )
    raise TargetError(msg)


def _candidates(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if isinstance(value, _KINDS)}


def _listed(candidates: dict[str, Any]) -> str:
    named = (f"{name} ({type(value).__name__})" for name, value in candidates.items())
    return ", ".join(named) or "no application"


def _resolved(value: Any, location: str, name: str) -> KafkaStreams | Topology | StreamsBuilder:
    if isinstance(value, _KINDS):
        return value
    what = f"{location}:{name or 'create_app'}"
    if callable(value):
        made = _called(value, what)
        if isinstance(made, _KINDS):
            return made
        value, what = made, f"The result of {what}()"
    msg = (
        f"{what} is of type {type(value).__name__}. Use a KafkaStreams, Topology or StreamsBuilder."
    )
    raise TargetError(msg, missing=False)


def _called(make: Callable[[], Any], what: str) -> Any:
    try:
        return make()
    except Exception as error:
        called = f"{what}()"
        raise _load_error(called, error) from error
