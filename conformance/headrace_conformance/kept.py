"""Files for the memory of a scenario's functions, which may run in other processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace_conformance.script import Memory


class _Noted(dict[str, Any]):
    """Variables that are written to a file at each change."""

    def __init__(self, content: dict[str, Any], changed: Callable[[], None]) -> None:
        super().__init__(content)
        self._changed = changed

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._changed()

    def __ior__(self, other: Any) -> _Noted:  # type: ignore[override,misc]
        super().update(other)
        self._changed()
        return self


class _Listed(list[int]):
    """Numbers that are written to a file at each change."""

    def __init__(self, content: list[int], changed: Callable[[], None]) -> None:
        super().__init__(content)
        self._changed = changed

    def append(self, number: int) -> None:
        super().append(number)
        self._changed()


class KeptMemory(Memory):
    """The memory of a processor, which continues in whichever process runs it next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cancellables = {}
        self._load()

    def _load(self) -> None:
        try:
            content = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            content = {"variables": {}, "made_in_init": [], "initialised": False}
        self.__dict__["variables"] = _Noted(content["variables"], self._save)
        self.made_in_init = _Listed(content["made_in_init"], self._save)
        self.__dict__["initialised"] = content["initialised"]

    def _save(self) -> None:
        content = {
            "variables": dict(self.variables),
            "made_in_init": list(self.made_in_init),
            "initialised": self.__dict__["initialised"],
        }
        self._path.write_text(json.dumps(content), "utf-8")

    @property
    def initialised(self) -> bool:
        """Return whether ``init`` has run. Each new instance asks first: the file is read here."""
        self._load()
        return bool(self.__dict__["initialised"])

    @initialised.setter
    def initialised(self, done: bool) -> None:
        self.__dict__["initialised"] = done
        self._save()

    def __reduce__(self) -> Any:
        return KeptMemory, (self._path,)


class KeptList:
    """A list in a file, a line for each item."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, item: Any) -> None:
        """Add an item."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(item) + "\n")

    def __iter__(self) -> Iterator[Any]:
        if self._path.exists():
            yield from map(json.loads, self._path.read_text("utf-8").splitlines())


class KeptText:
    """A file to print to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, text: str) -> int:
        """Print."""
        with self._path.open("a", encoding="utf-8") as file:
            return file.write(text)

    def flush(self) -> None:
        """Do nothing: all is written."""

    def getvalue(self) -> str:
        """Return what was printed."""
        return self._path.read_text("utf-8") if self._path.exists() else ""


class KeptEffects(dict[str, Any]):
    """The records that `peek` and `foreach` see, by operation."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def setdefault(self, name: str, _empty: Any = None) -> Any:
        return super().setdefault(name, KeptList(self._folder / f"{name}.seen"))


class KeptPrints(dict[str, Any]):
    """The lines that `print` prints, by operation."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def setdefault(self, name: str, _empty: Any = None) -> Any:
        return super().setdefault(name, KeptText(self._folder / f"{name}.printed"))
