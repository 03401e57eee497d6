"""Finds the Java that Spark runs on. Needs no Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from headrace.errors import StreamsError

_OLDEST = 17
_SECONDS = 60


class Java(NamedTuple):
    """A Java that is installed."""

    path: str
    version: str


def find_java() -> Java:
    """Return the Java that Spark runs on; raise `StreamsError` if none runs, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    needed = "Spark needs Java 17 or later. Install one and set `JAVA_HOME`, or put it on the path."
    if java is None or not Path(java).exists():
        where = f"`JAVA_HOME` is {home!r}, where there is none" if home else "none was found"
        msg = f"Java is missing: {where}. {needed}"
        raise StreamsError(msg)
    try:
        output = subprocess.run(  # noqa: S603  # the Java that Spark would start
            [java, "-version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_SECONDS,
        ).stderr
    except OSError as error:
        msg = f"Java does not run: {java!r} cannot be started: {error.strerror}. {needed}"
        raise StreamsError(msg) from error
    except subprocess.TimeoutExpired as error:
        msg = f"Java does not run: {java!r} says nothing for {_SECONDS} s. {needed}"
        raise StreamsError(msg) from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', output)
    if found is None:
        answer = next(iter(output.strip().splitlines()), "nothing").rstrip(".")
        msg = f"Java does not run: {java!r} says {answer!r} instead of its version. {needed}"
        raise StreamsError(msg)
    if int(found[2]) < _OLDEST:
        msg = f"Java is too old: {java!r} has version {found[1]}. {needed}"
        raise StreamsError(msg)
    return Java(java, found[1])
