"""The user's own modules: their source goes with a program to workers that cannot find them.

A worker of a cluster has what is installed in its Python, not the folder of the user's file. It
gets each module under its own name and imports it once. A class, an enum or an object at the top of
a module is then the same one for everything that runs in the worker.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.abc import ExecutionLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import msgspec

Module: TypeAlias = tuple[str, str]
"""Where a module was found on the driver, and its source."""

_DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_NEVER_OWN = {"headrace", "pyspark", "py4j", "__main__", *sys.stdlib_module_names}
_INSTALLED = {"site-packages", "dist-packages"}
_LIBRARIES = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
_PACKAGE_FILE = "__init__.py"


class NoSourceError(Exception):
    """A module of the user's is loaded, but not from Python source."""


def modules_for(names: Iterable[str]) -> bytes:
    """Return the user's modules among ``names``, and those that they import.

    Packages are taken as a whole: some of their modules may be imported only when they are needed.
    Raises `NoSourceError` if one of them is compiled.
    """
    waiting = {name.partition(".")[0] for name in names if _DOTTED_NAME.fullmatch(name)}
    seen = set(_NEVER_OWN)
    found: dict[str, Module] = {}
    while waiting := waiting - seen:
        seen |= waiting
        modules = {name: module for top in waiting for name, module in _modules_under(top)}
        found |= modules
        waiting = {name for _, source in modules.values() for name in _imported_names(source)}
    return zlib.compress(msgspec.msgpack.encode(found, order="sorted")) if found else b""


def _modules_under(top: str) -> Iterator[tuple[str, Module]]:
    """Yield a module or package and all in it, as far as it is the user's own."""
    spec = _spec_of(top)
    if spec is None:
        return
    for folder in map(Path, spec.submodule_search_locations or ()):
        yield from _modules_in(folder, top)
    loaded = [name for name in list(sys.modules) if name == top or name.startswith(f"{top}.")]
    for name in {top, *loaded}:
        module = _own_module(name, _spec_of(name))
        if module is not None:
            yield name, module


def _spec_of(name: str) -> ModuleSpec | None:
    if name in sys.modules:
        spec: ModuleSpec | None = getattr(sys.modules[name], "__spec__", None)
        return spec
    with suppress(ImportError, ValueError):
        return find_spec(name)
    return None


def _modules_in(folder: Path, name: str) -> Iterator[tuple[str, Module]]:
    if _is_installed(folder):
        return
    for file in sorted(folder.glob("*.py")):
        inside = name if file.name == _PACKAGE_FILE else f"{name}.{file.stem}"
        if inside not in sys.modules:
            with suppress(OSError, SyntaxError, UnicodeError):  # the driver cannot import it either
                yield inside, (str(file), decode_source(file.read_bytes()))
    for below in sorted(folder.glob("*")):
        has_modules = below.name.isidentifier() and any(below.glob("*.py"))
        if has_modules and not below.is_symlink():  # which may lead back to where it is
            yield from _modules_in(below, f"{name}.{below.name}")


def _own_module(name: str, spec: ModuleSpec | None) -> Module | None:
    """Return a module, or None if workers have it, or if it is only a folder."""
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    if _is_installed(Path(spec.origin)):
        return None
    known = _read.get(name)
    if known is None or known[0] is not spec:
        _read[name] = known = (spec, _source_of(name, spec))
    return spec.origin, known[1]


_read: dict[str, tuple[ModuleSpec, str]] = {}
"""The source of modules as it was read first: files may be edited later. Reloading makes a spec."""


def _source_of(name: str, spec: ModuleSpec) -> str:
    file = Path(str(spec.origin))
    source: str | None = None
    if file.suffix == ".py" and file.is_file():
        source = decode_source(file.read_bytes())
    elif get_source := getattr(spec.loader, "get_source", None):
        source = get_source(name)  # of an archive
    if source is None:
        msg = f"module {name!r} is not Python source, but {str(file)!r}"
        raise NoSourceError(msg)
    return source


def _is_installed(path: Path) -> bool:
    if _INSTALLED.intersection(path.parts):
        return True
    return not _LIBRARIES.isdisjoint(path.resolve().parents)


def _imported_names(source: str) -> Iterator[str]:
    """Yield the top-level names that a module imports, anywhere in it."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield node.module.partition(".")[0]


def provide_modules(data: bytes) -> None:
    """Make the modules of `modules_for` importable here, before others of the same name.

    Modules of an earlier program whose source has changed are imported again.
    """
    if not data:
        return
    modules = msgspec.msgpack.decode(zlib.decompress(data), type=dict[str, Module])
    _provided.add(modules)
    if _provided not in sys.meta_path:
        sys.meta_path.insert(0, _provided)


class _Provided(ExecutionLoader):
    """Finds and loads the modules that were provided."""

    def __init__(self) -> None:
        self._modules: dict[str, Module] = {}
        self._folders: set[str] = set()

    def add(self, modules: dict[str, Module]) -> None:
        kept = self._modules
        if any(name in kept and kept[name] != module for name, module in modules.items()):
            # Modules that have not changed may hold objects of those that have.
            for name in kept:
                sys.modules.pop(name, None)
        kept |= modules
        self._folders |= {name[:at] for name in modules for at in _dots(name)} - kept.keys()

    def find_spec(
        self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in self._modules:
            file = self.get_filename(name)
            inside = [str(Path(file).parent)] if self.is_package(name) else None
            return spec_from_file_location(
                name, file, loader=self, submodule_search_locations=inside
            )
        if name in self._folders:  # There may be more in it that is installed here.
            return PathFinder.find_spec(name, path) or ModuleSpec(name, None, is_package=True)
        return None

    def get_filename(self, name: str) -> str:
        return self._modules[name][0]

    def get_source(self, name: str) -> str:
        return self._modules[name][1]

    def is_package(self, name: str) -> bool:
        return Path(self.get_filename(name)).name == _PACKAGE_FILE


def _dots(name: str) -> Iterator[int]:
    return (found.start() for found in re.finditer(r"\.", name))


_provided = _Provided()
