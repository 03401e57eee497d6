"""The CDS archive: Spark's classes as Java has loaded them. With it Spark starts in half the time.

`headrace warm-up` records it, once for each installation of Spark. Recording slows Java down, so
applications do not record. Java checks that an archive fits, and ignores it otherwise.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import pyspark

_KEPT = 4
"""Archives, each of nearly 200 MB: as many as a user has environments that are in use."""
_OLD_SECONDS = 3600.0
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def cds_archive(java: str) -> Path:
    """Return the path of the archive for this Spark and Java, whether it exists or not.

    Java accepts it only with the very files that it was made from, so it is named after them.
    """
    spark = Path(pyspark.__file__).parent
    files = sorted((spark / "jars").glob("*.jar"))
    described = [str(spark), *(f"{file.name} {file.stat().st_mtime_ns}" for file in files)]
    digest = hashlib.sha256("\n".join(described).encode()).hexdigest()
    return _cache_directory() / f"spark-{pyspark.__version__}-java-{java}-{digest[:12]}.jsa"


def archive_options(archive: Path) -> str:
    """Return the options that let Java use an archive, or none if it has not been made."""
    try:
        os.utime(archive)  # it is in use
    except OSError:
        return ""
    return f"-XX:SharedArchiveFile={archive} {_QUIET}"


def recording_options(archive: Path) -> str:
    """Return the options with which Java writes an archive at its end; `keep_archive` is next."""
    archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"-XX:ArchiveClassesAtExit={_unfinished(archive)} {_QUIET}"


def keep_archive(archive: Path) -> bool:
    """Put an archive that Java has made in its place, and delete those in use longest ago.

    Returns whether Java has made one.
    """
    made = _unfinished(archive)
    if not made.exists():
        return False
    made.replace(archive)
    found = sorted(archive.parent.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
    for old in found[:-_KEPT]:
        with suppress(OSError):  # another process may be doing the same
            old.unlink()
    return True


def remove_left_over(archive: Path) -> None:
    """Delete the unfinished archives of processes that were killed before `keep_archive`.

    Recent ones stay: Java writes for seconds, also after the process that started it has ended.
    """
    for path in archive.parent.glob("spark-*.new"):
        with suppress(OSError):  # another process may be doing the same
            if time.time() - path.stat().st_mtime > _OLD_SECONDS:
                path.unlink()


def _unfinished(archive: Path) -> Path:
    """Return the file that this process writes; another process may write its own."""
    return archive.with_suffix(f".{os.getpid()}.new")


def _cache_directory() -> Path:
    """Return the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headrace"
