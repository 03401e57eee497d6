"""An archive of Spark's classes as Java has loaded them: it halves the time that Spark starts in.

The first run writes it when Java ends, later ones use it. Java itself checks that it fits, and goes
on without it if it does not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_SETTLED_SECONDS = 5.0


def archive_options(directory: Path, name: str) -> str:
    """Return the options that let Java use an archive, or make one.

    Args:
        directory: Where archives are kept; only the user may write there.
        name: Which Spark and which Java it is of.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        archive = directory / f"{name}.jsa"
        for made in directory.glob(f"{name}.*.new"):
            _take(made, archive)
    except OSError:
        return ""  # a home that cannot be written has no archive
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    # Several may be made at once, each in a file of its own; the last one finished stays.
    made = directory / f"{name}.{os.getpid()}.new"
    return f"-XX:ArchiveClassesAtExit={made} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _take(made: Path, archive: Path) -> None:
    """Put a new archive in its place, if the Java that writes it is done."""
    try:
        if time.time() - made.stat().st_mtime > _SETTLED_SECONDS:
            made.replace(archive)
    except FileNotFoundError:
        pass  # another process was faster


def cache_directory() -> Path:
    """Return where things are kept that can be made again."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headrace"
