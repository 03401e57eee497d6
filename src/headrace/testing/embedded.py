"""EmbeddedTopics: an embedded log for one test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class EmbeddedTopics:
    """An embedded log, and the folder of the applications that use it."""

    folder: Path

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that lead a client or an application here: ``**embedded_log.settings``."""
        return {"embedded_path": self.folder / "topics.db", "state_dir": self.folder}
