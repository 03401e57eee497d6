"""Scenario files and their goldens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent


def scenario_names(wanted: list[str] | None = None) -> list[str]:
    """Return the names of all scenarios, or of those that are, or are in, what is wanted."""
    folder = FOLDER / "scenarios"
    names = sorted(
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.json")
    )
    if not wanted:
        return names
    return [name for name in names if any(_is_meant(name, word) for word in wanted)]


def _is_meant(name: str, word: str) -> bool:
    return name == word or name.startswith(f"{word}/")


def load_scenario(name: str) -> dict[str, Any]:
    """Return the scenario called ``name``, such as ``aggregate/count``."""
    return _load("scenarios", name)


def load_golden(name: str) -> dict[str, Any]:
    """Return what Kafka Streams did with the scenario."""
    return _load("goldens", name)


def _load(kind: str, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / kind / f"{name}.json").read_text("utf-8"))
    return loaded
